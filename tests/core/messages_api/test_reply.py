from array import array
from typing import Any

import pytest

from sessions.core.engine_replies.sampled import Sampled
from sessions.core.messages_api.reply import SIGNATURE, reply_of
from sessions.core.texts.json_text import Json
from tests.support.engines import sampled_document

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def sampled(finish: str = "stop", *, prompt: int = 0, cached: int = 0, **message: Any) -> Sampled:  # noqa: ANN401
    document = sampled_document([1, 2], finish_reason=finish, **message)
    return Sampled(
        reply=document,
        message=document["choices"][0]["message"],
        token_ids=array("I", [1, 2]),
        log_probs=array("d", [0.0, 0.0]),
        finish_reason=finish,
        prompt_count=prompt,
        cached_count=cached,
    )


def test_a_reply_is_a_message():
    assert reply_of(sampled(content="hello", prompt=10, cached=4), None) == {
        "id": "chat-1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 6,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 4,
            "output_tokens": 2,
        },
    }


def test_blocks_are_thought_text_and_calls():
    told = reply_of(sampled(reasoning_content="hm", content="ok", tool_calls=[CALL]), None)
    assert told["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": SIGNATURE},
        {"type": "text", "text": "ok"},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
    ]


@pytest.mark.parametrize("nothing", [None, ""])
def test_no_block_is_empty(nothing: str | None):
    assert reply_of(sampled(reasoning_content=nothing, content=nothing), None)["content"] == []


def test_a_client_is_never_told_of_more_cached_tokens_than_there_are():
    usage = reply_of(sampled(prompt=3, cached=5), None)["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (0, 3)


def test_an_engine_without_id_and_model_is_told_without():
    made = sampled()
    del made.reply["id"], made.reply["model"]
    told = reply_of(made, None)
    assert (told["id"], told["model"]) == ("", "")


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "end_turn"),
        ("", "end_turn"),
        ("who knows", "end_turn"),
        ("length", "max_tokens"),
        ("abort", "max_tokens"),
        ("tool_calls", "tool_use"),
        ("function_call", "tool_use"),
        ("content_filter", "refusal"),
    ],
)
def test_the_end_has_the_word_of_that_api(finish: str, reason: str):
    told = reply_of(sampled(finish), None)
    assert (told["stop_reason"], told["stop_sequence"]) == (reason, None)


def test_calls_are_the_reason_even_if_the_engine_only_says_that_it_stopped():
    assert reply_of(sampled("stop", tool_calls=[CALL]), None)["stop_reason"] == "tool_use"
    assert reply_of(sampled("length", tool_calls=[CALL]), None)["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("name", ["matched_stop", "stop_reason"])
@pytest.mark.parametrize(
    ("matched", "stops", "told"),
    [
        ("END", ["x", "END"], ("stop_sequence", "END")),
        ("END", "END", ("stop_sequence", "END")),
        ("<|im_end|>", ["END"], ("end_turn", None)),
        (151645, ["END"], ("end_turn", None)),
        ("END", None, ("end_turn", None)),
        (None, ["END"], ("end_turn", None)),
    ],
)
def test_a_stop_that_the_client_named_is_told(
    name: str, matched: Json, stops: Json, told: tuple[str, str | None]
):
    made = sampled()
    made.reply["choices"][0][name] = matched
    found = reply_of(made, stops)
    assert (found["stop_reason"], found["stop_sequence"]) == told
