import json

import pytest

from sessions.core.forms.chat_events import event_of, events_of
from sessions.core.texts.json_text import JsonObject
from tests.support.engines import sampled_document


def chunks_of(
    document: JsonObject, *, usage: bool = False, logprobs: bool = False
) -> list[JsonObject]:
    events = list(events_of(document, has_usage=usage, has_logprobs=logprobs))
    assert events[-1] == b"data: [DONE]\n\n"
    return [json.loads(event.removeprefix(b"data: ")) for event in events[:-1]]


def deltas_of(document: JsonObject) -> list[JsonObject]:
    return [chunk["choices"][0]["delta"] for chunk in chunks_of(document)]


def test_a_reply_is_told_as_role_then_content_then_finish():
    chunks = chunks_of(sampled_document([1], content="hello"))
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": ""},
        {"content": "hello"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "stop"]
    for chunk in chunks:
        assert chunk["object"] == "chat.completion.chunk"
        assert (chunk["id"], chunk["created"], chunk["model"]) == ("chat-1", 1700000000, "m")
        assert chunk["choices"][0]["index"] == 0
        assert "usage" not in chunk


def test_reasoning_under_two_names_comes_in_one_delta():
    text = "hm " * 3000
    deltas = deltas_of(sampled_document([1], reasoning=text, reasoning_content=text))
    told = [d for d in deltas if "reasoning" in d or "reasoning_content" in d]
    assert len(told) > 1
    assert all(delta["reasoning"] == delta["reasoning_content"] for delta in told)
    assert "".join(delta["reasoning"] for delta in told) == text


def test_reasoning_that_differs_under_two_names_is_told_under_both():
    deltas = deltas_of(sampled_document([1], reasoning="a", reasoning_content="b"))
    assert {"reasoning": "a"} in deltas
    assert {"reasoning_content": "b"} in deltas


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_comes_before_the_content_under_its_own_name(name: str):
    document = sampled_document([1], content="hello", **{name: "hm"})
    assert deltas_of(document)[1:3] == [{name: "hm"}, {"content": "hello"}]


def test_tool_calls_are_counted_anew_and_arguments_are_text():
    calls = [
        {"id": "a", "index": 7, "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": {"x": 1}}},
        {"id": "c", "type": "function", "function": {"name": "h"}},
    ]
    told = [
        d["tool_calls"][0]
        for d in deltas_of(sampled_document([1], content=None, tool_calls=calls))
        if "tool_calls" in d
    ]
    assert [call["index"] for call in told] == [0, 1, 2]
    assert [call["id"] for call in told] == ["a", "b", "c"]
    assert [call["function"]["arguments"] for call in told] == ["{}", '{"x":1}', ""]


def test_long_texts_come_in_lines_that_clients_can_read():
    text = "\U0001f600" * 30_000
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": text}}]
    document = sampled_document([1], content=text, reasoning_content=text, tool_calls=calls)
    events = list(events_of(document, has_usage=False, has_logprobs=False))
    assert max(len(event) for event in events) < 65536
    deltas = deltas_of(document)
    assert "".join(delta.get("content", "") for delta in deltas) == text
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == text
    parts = [d["tool_calls"][0] for d in deltas if "tool_calls" in d]
    assert "".join(part["function"]["arguments"] for part in parts) == text
    assert {part["index"] for part in parts} == {0}


def test_the_usage_comes_last_with_no_choices_when_it_was_asked_for():
    chunks = chunks_of(sampled_document([1, 2]), usage=True)
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 2
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


@pytest.mark.parametrize("content", ["hello", None])
def test_log_probabilities_come_once_when_they_were_asked_for(content: str | None):
    chunks = chunks_of(sampled_document([1], content=content), logprobs=True)
    told = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    assert [value for value in told if value is not None] == [
        {"content": [{"token": "t", "logprob": -0.5}]}
    ]


def test_log_probabilities_stay_out_when_nobody_asked():
    told = [chunk["choices"][0]["logprobs"] for chunk in chunks_of(sampled_document([1]))]
    assert set(told) == {None}


def test_fields_of_the_message_that_nobody_knows_pass():
    document = sampled_document([1], refusal="no", annotations=None)
    assert deltas_of(document)[0] == {"role": "assistant", "content": "", "refusal": "no"}


def test_what_stopped_the_reply_is_told_with_the_finish():
    document = sampled_document([1])
    document["choices"][0]["matched_stop"] = 151645
    assert chunks_of(document)[-1]["choices"][0]["matched_stop"] == 151645


def test_events_are_ascii_and_one_line_each():
    document = sampled_document([1], content="\u2028\u0085\x1c\n\r\ud800é")
    for event in events_of(document, has_usage=False, has_logprobs=False):
        assert event.isascii()
        assert event.endswith(b"\n\n")
        assert len(event.decode().splitlines()) == 2
    assert deltas_of(document)[1] == {"content": "\u2028\u0085\x1c\n\r\ud800é"}


def test_an_event_is_one_data_line():
    assert event_of("x") == b"data: x\n\n"
