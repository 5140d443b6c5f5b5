"""A tool: a plain function of an environment, with arguments that its signature types.

`tool_of` reads a function's signature once and makes two things of it: the JSON schema that an
agent is shown, and the struct that checks what an agent sends. `Tool.call` checks and runs. What
is wrong with the arguments is said in words that help an agent to send better ones.

A plain function runs inside the shard's loop, so between two awaits nothing else touches the
episode; one that takes long must be async and give the loop away.

Spec: docs/tools.md#tools
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_type_hints

import msgspec

from sessions.errors.episodes import ToolArgumentsError
from sessions.errors.unseen import LocalProtocolError

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_PLACE: Final = re.compile(r"`\$\.?([^`]*)`")
_FIELD: Final = re.compile(r"field `([^`]*)`")
_NO_NAMES: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)

Json = Any  # what JSON can say; nothing here looks inside
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool; made by `tool_of`.

    Attributes:
        name: Letters, digits, `_` and `-`; at most 128.
        description: For the agent; the function's docstring, or "".
        input_schema: JSON schema of the arguments, always of an object.
        function: What runs; plain or async.
        arguments_type: A msgspec struct with one field an argument.
    """

    name: str
    description: str
    input_schema: Mapping[str, Json]
    function: Function
    arguments_type: type[msgspec.Struct]

    def arguments_of(self, given: object) -> dict[str, Any]:
        """Check arguments as they came out of JSON.

        Nothing is guessed: "3" is no number, and an unknown argument is refused.

        Args:
            given: An object's members; None counts as no arguments.

        Returns:
            One entry an argument, defaults filled in, values of the annotated types.

        Raises:
            ToolArgumentsError: They are not the tool's; the message says what is.
        """
        try:
            checked = msgspec.convert({} if given is None else given, self.arguments_type)
        except msgspec.ValidationError as error:
            raise _arguments_error(self, str(error)) from None
        return {name: getattr(checked, name) for name in self.arguments_type.__struct_fields__}


def tool_of(function: Function, *, name: str = "", description: str = "") -> Tool:
    """Make a tool of a function.

    Args:
        function: Plain or async, bound or not. Every parameter has an annotation that msgspec
            knows (`int`, `list[str]`, a struct, `Annotated[int, msgspec.Meta(ge=0)]`, …).
        name: Instead of the function's own.
        description: Instead of its docstring.

    Returns:
        The tool.

    Raises:
        LocalProtocolError: The name, or a parameter, cannot be a tool's; the message says why.
    """
    name = name or getattr(function, "__name__", "")
    if not _NAME.fullmatch(name):
        raise LocalProtocolError(f"{name!r} is no name of a tool")
    arguments_type = _arguments_type_of(name, function)
    schema = _schema_of(name, arguments_type)
    return Tool(
        name=name,
        description=description or inspect.getdoc(function) or "",
        input_schema=schema,
        function=function,
        arguments_type=arguments_type,
    )


def _arguments_type_of(name: str, function: Function) -> type[msgspec.Struct]:
    called = function if inspect.isroutine(function) else type(function).__call__
    hints = get_type_hints(called, include_extras=True)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in _NO_NAMES:
            raise LocalProtocolError(f"tool {name!r}: {parameter.name!r} cannot be named in JSON")
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            raise LocalProtocolError(f"tool {name!r}: **{parameter.name} has no names to tell")
        if parameter.name not in hints:
            raise LocalProtocolError(f"tool {name!r}: {parameter.name!r} has no annotation")
        if parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, hints[parameter.name]))
        else:
            fields.append((parameter.name, hints[parameter.name], _default_of(parameter.default)))
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


def _default_of(value: object) -> object:
    """A default as a struct takes it; one that can change is copied for every call."""
    if isinstance(value, list | dict | set):
        return msgspec.field(default_factory=lambda: type(value)(value))
    return value


def _schema_of(name: str, arguments_type: type[msgspec.Struct]) -> dict[str, Json]:
    try:
        (schema,), components = msgspec.json.schema_components(
            [arguments_type], ref_template="#/$defs/{name}"
        )
    except TypeError as error:
        raise LocalProtocolError(f"tool {name!r}: {error}") from error
    own: dict[str, Json] = components.pop(schema["$ref"].rpartition("/")[2])
    own.pop("title", None)
    return own | ({"$defs": components} if components else {})


def _arguments_error(tool: Tool, fault: str) -> ToolArgumentsError:
    """The fault in words for an agent; what names the argument is `param`."""
    match = _FIELD.search(fault) or _PLACE.search(fault)
    param = match[1] if match is not None and match[1] else None
    expected = ", ".join(tool.arguments_type.__struct_fields__) or "none"
    told = fault[:1].lower() + fault[1:].replace("`$.", "`").replace(" - at `$`", "")
    return ToolArgumentsError(
        f"bad arguments of tool {tool.name!r}: {told} (its arguments: {expected})", param=param
    )
