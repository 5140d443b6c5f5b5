import json
from typing import Any

import pytest

from sessions.core.messages_api.events import PING, event_of, events_of
from sessions.core.texts.json_text import JsonObject

USAGE = {"input_tokens": 3, "cache_read_input_tokens": 1, "output_tokens": 7}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
TEXT = {"type": "text", "text": "ok"}
CALL = {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": "é\u2028"}}


def message(*blocks: JsonObject) -> JsonObject:
    return {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": list(blocks),
        "stop_reason": "stop_sequence",
        "stop_sequence": "END",
        "usage": USAGE,
    }


def told(*blocks: JsonObject) -> list[Any]:
    """The bodies of the events; each has its type as its name."""
    found = []
    for event in events_of(message(*blocks)):
        name, data, *rest = event.decode("ascii").split("\n")
        body = json.loads(data.removeprefix("data: "))
        assert (name, rest) == (f"event: {body['type']}", ["", ""])
        found.append(body)
    return found


def test_a_message_is_told_from_start_to_stop():
    start, *blocks, delta, stop = told(THOUGHT, TEXT, CALL)
    assert start == {
        "type": "message_start",
        "message": {
            **message(),
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**USAGE, "output_tokens": 0},
        },
    }
    kinds = [(body["type"].removeprefix("content_block_"), body["index"]) for body in blocks]
    assert kinds == [
        *[("start", 0), ("delta", 0), ("delta", 0), ("stop", 0)],
        *[("start", 1), ("delta", 1), ("stop", 1)],
        *[("start", 2), ("delta", 2), ("stop", 2)],
    ]
    assert delta == {
        "type": "message_delta",
        "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END"},
        "usage": USAGE,
    }
    assert stop == {"type": "message_stop"}


def test_blocks_begin_empty_and_grow():
    bodies = told(THOUGHT, TEXT, CALL)
    starts = [body["content_block"] for body in bodies if "content_block" in body]
    assert starts == [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "text", "text": ""},
        {**CALL, "input": {}},
    ]
    deltas = [body["delta"] for body in bodies if body["type"] == "content_block_delta"]
    assert deltas[:3] == [
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "s"},
        {"type": "text_delta", "text": "ok"},
    ]
    assert deltas[3]["type"] == "input_json_delta"
    assert json.loads(deltas[3]["partial_json"]) == CALL["input"]


def test_a_message_without_blocks_has_no_block_events():
    assert [body["type"] for body in told()] == ["message_start", "message_delta", "message_stop"]


@pytest.mark.parametrize("text", ["\U0001f600" * 9000, "\ud800" * 5000])
def test_long_texts_come_in_pieces_below_the_limits_of_line_readers(text: str):
    events = list(events_of(message({"type": "text", "text": text})))
    assert max(map(len, events)) < 65536
    assert all(event.isascii() for event in events)
    pieces = [body["delta"]["text"] for body in told({"type": "text", "text": text})[2:-3]]
    assert "".join(pieces) == text


def test_a_ping_is_an_event_too():
    assert PING == event_of({"type": "ping"}) == b'event: ping\ndata: {"type":"ping"}\n\n'
