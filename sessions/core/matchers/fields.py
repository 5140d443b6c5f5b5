"""Matchers that compare some fields of a message: strict, loose_tool_call, role_content_only.

In each field None, "" and [] are equal; the `index` that streams put into tool calls is ignored,
and `reasoning` counts as reasoning_content when that is missing (engines differ in the name). Other
fields are ignored. Everything else is exact, white space and number types too, except that
loose_tool_call compares the arguments of tool calls by what they say. So do all where the client
could not send the text itself (`Reworded`); of such a call only id, name and arguments count, since
the client knows no more of it.

Spec: docs/sessions.md#matcher
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from sessions.core.matchers.arguments import SAME, Reworded, canonical_of, doubled_of
from sessions.core.matchers.comparison import compare
from sessions.core.matchers.matcher import Difference
from sessions.core.texts.json_text import Json, JsonObject


class FieldMatcher:
    """See the module docstring; implements `Matcher`."""

    def __init__(self, *fields: str, reads_arguments: bool = False) -> None:
        """Remember the rule.

        Args:
            fields: What is compared, in this order.
            reads_arguments: The arguments of tool calls are compared by what they say.
        """
        self._fields = fields
        self._reads_arguments = reads_arguments

    def difference_of(self, stored: JsonObject, sent: JsonObject) -> Difference | None:
        """See `Matcher`."""
        for field in self._fields:
            ours, theirs = stored.get(field), sent.get(field)
            # Nearly all fields of a long history end here.
            if ours and type(ours) is str and ours == theirs:
                continue
            if ours is None and theirs is None and not _has_other_name(field, stored, sent):
                continue
            ours, theirs = _value_of(stored, field), _value_of(sent, field)
            if field == "tool_calls":
                ours, theirs = _with_equal_calls(ours, theirs, reads=self._reads_arguments)
            found = compare(field, ours, theirs)
            if found is not None:
                return found
        return None

    def bucket_of(self, message: JsonObject) -> Hashable:
        """See `Matcher`: role and text, which all of these compare."""
        role, content = message.get("role"), message.get("content")
        return (
            role if isinstance(role, str) else "",
            content if isinstance(content, str) else bool(content) or "",
        )


STRICT: Final = FieldMatcher("role", "content", "reasoning_content", "tool_calls")
LOOSE_TOOL_CALL: Final = FieldMatcher(
    "role", "content", "reasoning_content", "tool_calls", reads_arguments=True
)
ROLE_CONTENT_ONLY: Final = FieldMatcher("role", "content")


def _has_other_name(field: str, stored: JsonObject, sent: JsonObject) -> bool:
    return field == "reasoning_content" and ("reasoning" in stored or "reasoning" in sent)


def _value_of(message: JsonObject, field: str) -> Json:
    value = message.get(field)
    if field == "reasoning_content" and not value:
        value = message.get("reasoning")
    if value in ("", []):
        return None
    if field == "tool_calls" and isinstance(value, list):
        return [_without_index(call) for call in value]
    return value


def _without_index(call: Json) -> Json:
    if isinstance(call, dict) and "index" in call:
        return {key: value for key, value in call.items() if key != "index"}
    return call


def _with_equal_calls(stored: Json, sent: Json, *, reads: bool) -> tuple[Json, Json]:
    """Two lists of tool calls, what says the same in calls that pair told alike.

    Args:
        stored: Calls that the session holds.
        sent: Calls that the client sent.
        reads: Arguments that say the same are the same whoever sent them.
    """
    if not isinstance(stored, list) or not isinstance(sent, list):
        return stored, sent
    ours, theirs = list(stored), list(sent)
    for index, pair in enumerate(zip(stored, sent, strict=False)):
        if not all(map(_is_call, pair)):
            continue
        if any(map(_is_reworded, pair)) and _are_one_call(*pair):
            ours[index] = theirs[index] = SAME
        elif reads and _say_the_same(*pair):
            ours[index], theirs[index] = map(_with_same_arguments, pair)
    return ours, theirs


def _is_call(call: Json) -> bool:
    return isinstance(call, dict) and isinstance(call.get("function"), dict)


def _is_reworded(call: JsonObject) -> bool:
    return type(call["function"].get("arguments")) is Reworded


def _are_one_call(one: JsonObject, other: JsonObject) -> bool:
    mine, others = one["function"], other["function"]
    if (one.get("id") or "") != (other.get("id") or "") or mine.get("name") != others.get("name"):
        return False
    ours, theirs = mine.get("arguments"), others.get("arguments")
    if ours == theirs:
        return True
    form = doubled_of(ours)
    return form is not None and form == doubled_of(theirs)


def _say_the_same(one: JsonObject, other: JsonObject) -> bool:
    form = canonical_of(one["function"].get("arguments"))
    return form is not None and form == canonical_of(other["function"].get("arguments"))


def _with_same_arguments(call: JsonObject) -> JsonObject:
    return {**call, "function": {**call["function"], "arguments": SAME}}
