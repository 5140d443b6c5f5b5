"""Events: put together again they are the reply."""

import json
from typing import Any

from sessions.sim.stream import DONE, events_of

CALL: dict[str, Any] = {
    "id": "call_1",
    "index": 0,
    "type": "function",
    "function": {"name": "look_up", "arguments": '{"where": "a rather long place name"}'},
}


def document(**message: object) -> dict[str, Any]:
    said = {
        "role": "assistant",
        "content": "",
        "reasoning_content": None,
        "tool_calls": None,
        **message,
    }
    choice = {
        "index": 0,
        "message": said,
        "logprobs": {"content": []},
        "finish_reason": "stop",
        "matched_stop": 9,
    }
    return {
        "id": "i",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": {"prompt_tokens": 3},
    }


def chunks_of(made: dict[str, Any], *, with_usage: bool = False) -> list[dict[str, Any]]:
    events = list(events_of(made, with_usage=with_usage))
    assert events.pop() == DONE
    assert all(event.startswith(b"data: ") and event.endswith(b"\n\n") for event in events)
    return [json.loads(event[6:]) for event in events]


def test_fragments_make_the_message():
    content, reasoning = "A sentence of some length, ü.", "Some thoughts about it."
    made = document(content=content, reasoning_content=reasoning)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks_of(made)]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == content
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == reasoning
    assert len(deltas) > 5


def test_a_call_has_its_name_first_and_then_its_arguments():
    deltas = [
        chunk["choices"][0]["delta"]["tool_calls"][0]
        for chunk in chunks_of(document(tool_calls=[CALL]))
        if "tool_calls" in chunk["choices"][0]["delta"]
    ]
    opening = deltas[0]
    assert (opening["index"], opening["id"], opening["type"]) == (0, "call_1", "function")
    assert opening["function"] == {"name": "look_up", "arguments": ""}
    arguments = "".join(delta["function"]["arguments"] for delta in deltas)
    assert arguments == CALL["function"]["arguments"]
    assert {delta["index"] for delta in deltas} == {0}


def test_the_last_chunk_of_a_choice_says_why_it_ended():
    chunks = chunks_of(document(content="hi"))
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "stop"]
    last = chunks[-1]["choices"][0]
    assert (last["delta"], last["matched_stop"], last["logprobs"]) == ({}, 9, {"content": []})
    for chunk in chunks:
        assert (chunk["id"], chunk["object"], chunk["created"], chunk["model"]) == (
            "i",
            "chat.completion.chunk",
            1,
            "m",
        )


def test_the_usage_comes_last_if_asked_for():
    assert chunks_of(document(), with_usage=True)[-1]["usage"] == {"prompt_tokens": 3}
    assert chunks_of(document(), with_usage=True)[-1]["choices"] == []
    assert all(chunk["usage"] is None for chunk in chunks_of(document()))
