"""Tools as TypeScript types, the way some models are told of them.

Each function is a type in a namespace, its description a comment before it, its parameters an
object: those that are required first, both kinds by name, what else their schema says in comments.
A schema that has no such form (a reference, an unknown keyword in the place of a type) has none as
a whole; such tools are told as JSON.

Must not know templates or families.

Spec: docs/sessions.md#templates-that-ship
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

_STEP: Final = "  "
# What a comment tells of a value, by its type.
_LIMITS: Final[Mapping[object, tuple[str, ...]]] = MappingProxyType(
    {
        "string": ("maxLength", "minLength", "pattern"),
        "number": ("maximum", "minimum"),
        "integer": ("maximum", "minimum"),
        "array": ("maxItems", "minItems"),
    }
)
_UNION_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "string": "string",
        "number": "number",
        "integer": "number",
        "boolean": "boolean",
        "null": "null",
        "object": "{}",
        "array": "Array<any>",
    }
)


class _NoFormError(ValueError):
    """A schema has no TypeScript form."""


def typescript_of(tools: object) -> str | None:
    """Tools as TypeScript.

    Args:
        tools: As the client sent them.

    Returns:
        The text, with a line break at its end; None if there are no functions, or if one of them
        has no such form.
    """
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        return None
    found = [tool.get("function") for tool in tools if isinstance(tool, Mapping)]
    functions = [function for function in found if isinstance(function, Mapping)]
    try:
        texts = [_function_text(function) for function in functions]
    except (_NoFormError, RecursionError):
        return None
    if not texts:
        return None
    inside = "\n".join(texts)
    return f"# Tools\n\n## functions\nnamespace functions {{\n{inside}\n}}\n"


def _function_text(function: Mapping[str, object]) -> str:
    parameters = function.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        raise _NoFormError
    name = function.get("name", "function")
    line = f"type {name} = (_: {_object_text(parameters, '')}) => any;"
    description = function.get("description")
    return f"{_comment(str(description), '')}\n{line}" if description else line


def _object_text(schema: Mapping[str, object], indent: str) -> str:
    inner = indent + _STEP
    properties = schema.get("properties") or {}
    required = _list_of(schema.get("required") or [])
    if not isinstance(properties, Mapping) or "$defs" in schema:
        raise _NoFormError
    names = sorted(properties, key=lambda name: (name not in required, name))
    lines = [
        _notes(properties[name], inner)
        + f"{inner}{name}{'' if name in required else '?'}: {_type_text(properties[name], inner)}"
        for name in names
    ]
    others = schema.get("additionalProperties")
    if others is not None:
        kind = "never" if others is False else "any" if others is True else None
        lines.append(f"{inner}[k: string]: {kind or _type_text(others, inner)}")
    if not lines:
        return "{}"
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def _type_text(schema: object, indent: str) -> str:
    if isinstance(schema, bool):
        return "any" if schema else "null"
    if not isinstance(schema, Mapping) or "$ref" in schema:
        raise _NoFormError
    if "anyOf" in schema:
        return " | ".join(_type_text(each, indent) for each in _list_of(schema["anyOf"]))
    if "enum" in schema:
        values = _list_of(schema["enum"])
        return " | ".join(f'"{each}"' if isinstance(each, str) else str(each) for each in values)
    return _named_type_text(schema, indent) if schema else "any"


def _named_type_text(schema: Mapping[str, object], indent: str) -> str:
    """The type of a schema that names it."""
    kind = schema.get("type")
    if kind == "object":
        return _object_text(schema, indent)
    if kind == "array":
        return _array_text(schema.get("items"), indent)
    if isinstance(kind, str):
        return "number" if kind == "integer" else kind
    names = [str(each) for each in _list_of(kind)]
    if not set(names) <= _UNION_NAMES.keys():
        raise _NoFormError
    return " | ".join(_UNION_NAMES[name] for name in names)


def _array_text(items: object, indent: str) -> str:
    if not items:
        return "Array<any>"
    inner = indent + _STEP
    notes = _notes(items, inner, has_default=False)
    if not notes:
        return f"Array<{_type_text(items, indent)}>"
    return f"Array<\n{notes}{inner}{_type_text(items, inner)}\n{indent}>"


def _notes(schema: object, indent: str, *, has_default: bool = True) -> str:
    """The comments before a value: what it is, its limits, its default; each line with its end."""
    if not isinstance(schema, Mapping):
        return ""
    lines = []
    if schema.get("description"):
        lines.append(_comment(str(schema["description"]), indent))
    kind = schema.get("type")
    is_plain = isinstance(kind, str) and not {"anyOf", "enum"} & schema.keys()
    limits = [name for name in _LIMITS.get(kind, ()) if name in schema] if is_plain else []
    if limits:
        lines.append(f"{indent}// {', '.join(f'{name}: {schema[name]}' for name in limits)}")
    default = schema.get("default")
    if has_default and default is not None:
        is_number = isinstance(default, bool | int | float)
        text = repr(default) if is_number else json.dumps(default, ensure_ascii=False)
        lines.append(f"{indent}// Default: {text}")
    return "".join(f"{line}\n" for line in lines)


def _comment(text: str, indent: str) -> str:
    """A text as comment lines; an empty line stays empty."""
    return "\n".join(f"{indent}// {line}" if line else "" for line in text.split("\n"))


def _list_of(value: object) -> Sequence[object]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _NoFormError
    return value
