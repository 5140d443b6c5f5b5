"""Tools and results as MCP says them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from sessions.errors.episodes import ToolArgumentsError
from sessions.tools.mcp_results import failure_of, listing_of, result_of
from sessions.tools.tool import tool_of

PIXEL = base64.b64encode(b"\x89PNG").decode()
IMAGE = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": PIXEL, "mimeType": "audio/wav"}
RESOURCE = {"type": "resource", "resource": {"uri": "x://a", "mimeType": "text/plain", "text": "t"}}
TEXT = {"type": "text", "text": "seen"}


def told(value: object) -> dict[str, Any]:
    said: dict[str, Any] = result_of(value).model_dump(by_alias=True, exclude_none=True)
    return {key: said[key] for key in ("content", "structuredContent") if key in said}


def add(n: int) -> None:
    """Add to the counter."""


def total() -> None: ...


def test_lists_name_description_and_schema_in_order():
    added, totalled = listing_of([tool_of(add), tool_of(total)])
    assert (added.name, added.description) == ("add", "Add to the counter.")
    assert added.input_schema["properties"] == {"n": {"type": "integer"}}
    assert added.input_schema["required"] == ["n"]
    assert (totalled.name, totalled.description) == ("total", None)


def test_a_text_is_a_text():
    assert told("né") == {"content": [{"type": "text", "text": "né"}]}


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "null"), (3, "3"), (True, "true"), ([1, "é"], '[1,"é"]'), ([], "[]"), (["a"], '["a"]')],
)
def test_what_is_no_object_is_its_json_as_text(value: object, text: str):
    assert told(value) == {"content": [{"type": "text", "text": text}]}


def test_an_object_is_told_as_text_and_as_structure():
    assert told({"total": 3}) == {
        "content": [{"type": "text", "text": '{"total":3}'}],
        "structuredContent": {"total": 3},
    }


@pytest.mark.parametrize("block", [IMAGE, AUDIO, RESOURCE])
def test_content_of_mcp_is_sent_as_it_is(block: dict[str, Any]):
    assert told(block) == {"content": [block]}


def test_a_list_of_content_is_sent_as_it_is():
    assert told([TEXT, IMAGE, RESOURCE]) == {"content": [TEXT, IMAGE, RESOURCE]}


@pytest.mark.parametrize(
    "value",
    [
        TEXT,  # a single text has no need to be content
        {"type": "image", "url": "x"},
        {"type": "door", "data": PIXEL, "mimeType": "image/png"},
        {"type": ["image"]},
    ],
)
def test_an_object_that_only_looks_like_content_is_an_object(value: dict[str, Any]):
    assert told(value)["structuredContent"] == value


def test_a_list_that_is_not_all_content_is_json():
    (block,) = told([TEXT, {"total": 3}])["content"]
    assert block["text"] == '[{"type":"text","text":"seen"},{"total":3}]'


def test_a_lone_surrogate_does_not_break_the_reply():
    assert told("a\ud800") == {"content": [{"type": "text", "text": "a?"}]}


def test_a_failure_is_marked_and_tells_the_message():
    result = failure_of(ToolArgumentsError("n is missing"))
    assert result.is_error
    assert [block.model_dump()["text"] for block in result.content] == ["n is missing"]
