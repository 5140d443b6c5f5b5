"""Content blocks of Anthropic's messages as chat messages.

A message of that API may hold what are several messages of a chat: the results of tools, each a
message of its own, and what the user says besides. The other way round replies that follow one
another are one reply, told in pieces. Texts of a user, the system or a tool are separate blocks,
so a line break stands between them; those of a reply are one text.

Must not know requests.

Spec: docs/sessions.md#anthropic-clients
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NoReturn

from sessions.core.messages_api.tool_inputs import arguments_of
from sessions.core.texts.json_text import Json, JsonObject
from sessions.errors.client_visible import RequestError
from sessions.errors.turns import UnsupportedContentError

_ROLES: Final = ("user", "assistant", "system")
# What a tool says that failed without a word; else a model could not tell.
_NAMELESS_ERROR: Final = "error"

# Claude Code writes its version, and a value that is another one in each request, before the system
# prompt. With it no request would go on from the one before; it is not for the model.
_BILLING: Final = "x-anthropic-billing-header:"

_Placed = tuple[str, JsonObject]


def messages_of(system: Json, messages: Json) -> list[JsonObject]:
    """The messages of a chat.

    Args:
        system: The request's `system`: a text, text blocks, or nothing.
        messages: The request's `messages`.

    Returns:
        New messages, `system` first if it says anything.

    Raises:
        RequestError: A part is malformed; `param` names the place.
        UnsupportedContentError: A part is no text (an image, a document, a server's tool).
    """
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages must be a non-empty array", param="messages")
    told = _system_text_of(system)
    found: list[JsonObject] = [{"role": "system", "content": told}] if told else []
    placed = [(f"messages[{index}]", message) for index, message in enumerate(messages)]
    for role, group in groupby(placed, lambda pair: _role_of(*pair)):
        if role == "assistant":
            blocks = [b for place, m in group for b in _blocks_of(m.get("content"), place)]
            found.append(_reply_of(blocks))
            continue
        for place, message in group:
            if role == "system":
                text = _texts_of(message.get("content"), f"{place}.content")
                found.append({"role": "system", "content": text})
            else:
                found += _said_by_user(_blocks_of(message.get("content"), place))
    return found


def _system_text_of(system: Json) -> str:
    blocks = [] if system is None else _listed(system, "system")
    texts = [_text_of(*block) for block in blocks]
    for index, text in enumerate(texts):
        if text.startswith(_BILLING):
            texts[index] = text.partition("\n")[2]
    return "\n".join(text for text in texts if text)


def _said_by_user(blocks: Sequence[_Placed]) -> Iterator[JsonObject]:
    """Texts and results of tools, in their order; nothing at all is an empty message."""
    texts: list[str] = []
    for place, block in blocks:
        if block["type"] == "tool_result":
            if texts:
                yield {"role": "user", "content": "\n".join(texts)}
                texts = []
            yield _result_of(place, block)
        else:
            texts.append(_text_of(place, block))
    if texts or not blocks:
        yield {"role": "user", "content": "\n".join(texts)}


def _result_of(place: str, block: JsonObject) -> JsonObject:
    text = _texts_of(block.get("content"), f"{place}.content")
    if block.get("is_error") is True and not text:
        text = _NAMELESS_ERROR
    called = _word_in(place, block, "tool_use_id")
    return {"role": "tool", "tool_call_id": called, "content": text}


def _reply_of(blocks: Sequence[_Placed]) -> JsonObject:
    """One assistant message; the order of texts, thoughts and calls among each other is ours."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[JsonObject] = []
    for place, block in blocks:
        kind = block["type"]
        if kind == "tool_use":
            calls.append(_call_of(place, block))
        elif kind == "thinking":
            thoughts.append(_word_in(place, block, "thinking"))
        elif kind != "redacted_thinking":  # of another server: nobody can read it
            texts.append(_text_of(place, block))
    message: JsonObject = {"role": "assistant", "content": "".join(texts) or None}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    elif message["content"] is None:
        message["content"] = ""
    return message


def _call_of(place: str, block: JsonObject) -> JsonObject:
    given = block.get("input")
    if not isinstance(given, dict):
        _refuse(f"{place}.input", "must be an object")
    called, name = _word_in(place, block, "id"), _word_in(place, block, "name")
    function = {"name": name, "arguments": arguments_of(given)}
    return {"id": called, "type": "function", "function": function}


def _role_of(place: str, message: Json) -> str:
    if not isinstance(message, dict):
        _refuse(place, "must be an object")
    role = message.get("role")
    if role not in _ROLES:
        _refuse(f"{place}.role", f"must be one of {', '.join(_ROLES)}")
    return str(role)


def _texts_of(content: Json, place: str) -> str:
    """Content that may only be text; nothing is an empty text."""
    if content is None:
        return ""
    return "\n".join(_text_of(*block) for block in _listed(content, place))


def _blocks_of(content: Json, place: str) -> list[_Placed]:
    return _listed(content, f"{place}.content")


def _listed(content: Json, place: str) -> list[_Placed]:
    """Blocks with their places, each an object with a type; a text stands for one block."""
    if isinstance(content, str):
        return [(place, {"type": "text", "text": content})] if content else []
    if not isinstance(content, list):
        _refuse(place, "must be a string or an array of content blocks")
    found = [(f"{place}[{index}]", block) for index, block in enumerate(content)]
    for each, block in found:
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            _refuse(each, "must be an object with a type")
    return found


def _text_of(place: str, block: JsonObject) -> str:
    if block["type"] != "text":
        raise UnsupportedContentError(
            f"{place} is of type {block['type'][:40]!r}, which cannot stand there:"
            " this model takes text only",
            param=place,
        )
    return _word_in(place, block, "text")


def _word_in(place: str, block: JsonObject, field: str) -> str:
    word = block.get(field)
    if not isinstance(word, str):
        _refuse(f"{place}.{field}", "must be a string")
    return word


def _refuse(place: str, rule: str) -> NoReturn:
    raise RequestError(f"{place} {rule}", param=place)
