"""What a template is told besides messages and tools: the request's kwargs under a family's rules.

A family fixes some (its template only appends with them) and may have a thinking switch, which
requests spell in several ways; all spellings get the one meaning, because engine and template read
different ones.

Must not know templates or how prompts are built.

Spec: docs/sessions.md#families
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn

from sessions.errors.turns import BadTemplateKwargsError
from sessions.tokens.families.declaration import Family, ThinkingSwitch
from sessions.tokens.templates import RESERVED_NAMES

_PLACE: Final = "chat_template_kwargs"


def template_kwargs_of(family: Family, requested: object) -> dict[str, object]:
    """Template kwargs of a request, with those that the family fixes or computes.

    Args:
        family: The family.
        requested: The request's `chat_template_kwargs`, or None; or what this gave before, which
            comes back as it is.

    Raises:
        BadTemplateKwargsError: It is no object, contradicts a fixed value or itself, or names
            something that the template gets from elsewhere.
    """
    if requested is None:
        requested = {}
    if not isinstance(requested, Mapping):
        raise BadTemplateKwargsError(f"{_PLACE} must be an object", param=_PLACE)
    for name, value in requested.items():
        if name in RESERVED_NAMES or name in family.template_texts:
            _refuse(name, "is reserved")
        fixed = family.fixed_kwargs.get(name, value)
        if fixed != value:
            _refuse(name, f"is fixed to {fixed!r} for {family.name}")
    switch = family.thinking
    if switch is None:
        return {**requested, **family.fixed_kwargs}
    known = {name: value for name, value in requested.items() if name != switch.mode_name}
    return {**known, **_thinking_of(switch, requested), **family.fixed_kwargs}


def _thinking_of(switch: ThinkingSwitch, requested: Mapping[str, object]) -> dict[str, object]:
    """The kwargs of a thinking switch, all saying the same."""
    said: dict[str, bool] = {}
    for name in switch.names:
        value = requested.get(name)
        if isinstance(value, bool):
            said[name] = value
        elif value is not None:
            _refuse(name, "must be true or false")
    mode = requested.get(switch.mode_name)
    if mode in {"thinking", "chat"}:
        said[switch.mode_name] = mode == "thinking"
    elif mode is not None:
        _refuse(switch.mode_name, "must be thinking or chat")
    first = next(iter(said), "")
    for name, thinks in said.items():
        if thinks is not said[first]:
            _refuse(name, f"contradicts {first}")
    return dict.fromkeys(switch.names, said.get(first, switch.default))


def _refuse(name: str, rule: str) -> NoReturn:
    raise BadTemplateKwargsError(f"{_PLACE}.{name} {rule}", param=f"{_PLACE}.{name}")
