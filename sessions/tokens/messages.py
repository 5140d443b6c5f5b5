"""Chat messages as chat templates need them, made of what clients send.

Clients send content as a string, as null or as a list of text parts, tool-call arguments as a JSON
string, reasoning under two names, and `developer` for what templates call `system`. Templates know
one form of each. `normalise_messages` makes that form and refuses, naming the place in the request,
what has none: an image, an unknown role, a content that is a number.

Must not know templates, tokens or sessions.

Spec: docs/sessions.md#messages
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn, TypeAlias

from sessions.errors.client_visible import RequestError
from sessions.errors.turns import UnrenderableMessageError, UnsupportedContentError

Message: TypeAlias = Mapping[str, object]

ROLES: Final = frozenset({"system", "user", "assistant", "tool"})
_SAME_ROLE: Final = {"developer": "system"}
_TEXT_PARTS: Final = frozenset({"text", "input_text", "output_text"})


def normalise_messages(messages: object, *, offset: int = 0) -> list[dict[str, object]]:
    """Bring messages to the form that templates know.

    Args:
        messages: The request's `messages`, or a tail of them; not changed.
        offset: Index in the request of the first message, for error messages.

    Returns:
        New messages in the same order: `role` is one of `ROLES`, `content` a string (parts are
        joined without anything between), `reasoning_content` a string if there is one,
        `tool_calls` a non-empty list if there are any, their `arguments` an object where the
        client's JSON is one. Other fields are kept.

    Raises:
        RequestError: The messages are no list of objects.
        UnrenderableMessageError: A field of a message has a type that no template knows.
        UnsupportedContentError: A content part is not text.
    """
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        raise RequestError("messages must be a list", param="messages")
    return [_normalise(message, offset + index) for index, message in enumerate(messages)]


def _normalise(message: object, index: int) -> dict[str, object]:
    place = f"messages[{index}]"
    if not isinstance(message, Mapping):
        _refuse(place, "must be an object")
    role = message.get("role")
    if isinstance(role, str):
        role = _SAME_ROLE.get(role, role)
    if not isinstance(role, str) or role not in ROLES:
        _refuse(f"{place}.role", f"must be one of {', '.join(sorted(ROLES))}")
    found = {
        **message,
        "role": role,
        "content": _text_of(message.get("content"), f"{place}.content"),
    }
    reasoning = found.pop("reasoning", None)
    if found.get("reasoning_content") is None:
        found["reasoning_content"] = reasoning
    if found["reasoning_content"] is None:
        del found["reasoning_content"]
    else:
        thought = _text_of(found["reasoning_content"], f"{place}.reasoning_content")
        found["reasoning_content"] = thought
    calls = _tool_calls_of(found.pop("tool_calls", None), f"{place}.tool_calls")
    if calls:
        found["tool_calls"] = calls
    return found


def _text_of(content: object, place: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        _refuse(place, "must be a string, null or a list of text parts")
    return "".join(_part_text_of(part, f"{place}[{index}]") for index, part in enumerate(content))


def _part_text_of(part: object, place: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or not isinstance(kind, str):
        _refuse(place, "must be an object with a type")
    if kind not in _TEXT_PARTS:
        raise UnsupportedContentError(
            f"{place} is of type {kind!r}, but this model takes text only", param=place
        )
    text = part.get("text")
    if not isinstance(text, str):
        _refuse(f"{place}.text", "must be a string")
    return text


def _tool_calls_of(calls: object, place: str) -> list[dict[str, object]]:
    if calls is None:
        return []
    if isinstance(calls, str) or not isinstance(calls, Sequence):
        _refuse(place, "must be a list")
    return [_tool_call_of(call, f"{place}[{index}]") for index, call in enumerate(calls)]


def _tool_call_of(call: object, place: str) -> dict[str, object]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        _refuse(place, "must be an object with a function")
    if not isinstance(function.get("name"), str):
        _refuse(f"{place}.function.name", "must be a string")
    arguments = _arguments_of(function.get("arguments"))
    return {**call, "function": {**function, "arguments": arguments}}


def _arguments_of(arguments: object) -> object:
    """The object that a JSON string holds; the string itself where it holds none."""
    if arguments is None:
        return {}
    if not isinstance(arguments, str):
        return arguments
    if not arguments.strip():
        return {}
    try:
        parsed = json.loads(arguments, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        return arguments
    return parsed if isinstance(parsed, dict) else arguments


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is too large")
    return number


def _refuse(place: str, rule: str) -> NoReturn:
    raise UnrenderableMessageError(f"{place} {rule}", param=place)
