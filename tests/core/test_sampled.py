import json
from array import array

import pytest

from sessions.core.json_text import JsonObject
from sessions.core.sampled import Sampled, sampled_in, shown_text
from sessions.errors import EngineReplyUnusableError
from tests.support.engines import sampled_document

PROMPT = [1, 2, 3]


def parse(document: object, prompt: list[int] = PROMPT) -> Sampled:
    text = json.dumps(document).encode()
    return sampled_in(json.loads(text), text, array("I", prompt))


def refusal_of(document: object) -> str:
    with pytest.raises(EngineReplyUnusableError) as caught:
        parse(document)
    assert caught.value.status == 502
    return caught.value.message


def test_the_sampled_ids_are_those_of_the_log_probabilities():
    sampled = parse(sampled_document([7, 8, 9], content="x"))
    assert sampled.token_ids.tolist() == [7, 8, 9]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]},
        {"role": "assistant", "content": None},
        {"role": "assistant"},
        {"content": "x", "tool_calls": []},
        {"content": "x", "tool_calls": None},
        {"content": "", "reasoning_content": None, "reasoning": "hm"},
    ],
)
def test_odd_but_valid_messages_are_accepted(message: JsonObject):
    document = sampled_document([7])
    document["choices"][0]["message"] = message
    assert parse(document).message["role"] == "assistant"


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "abort", None, "new"])
def test_any_finish_reason_is_accepted(reason: str | None):
    assert parse(sampled_document([7], finish_reason=reason)).token_ids.tolist() == [7]


def test_no_sampled_token_is_accepted():
    assert len(parse(sampled_document([])).token_ids) == 0


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        None,
        {"choices": []},
        {"choices": None},
        {"choices": [None]},
        {"error": {"message": "out of memory"}},
    ],
)
def test_a_reply_without_choices_is_refused_with_its_text(document: object):
    message = refusal_of(document)
    assert "has no choices" in message
    assert json.dumps(document)[:20] in message


@pytest.mark.parametrize("meta", [None, {}, {"output_token_logprobs": None}, [], "x"])
def test_a_reply_without_token_ids_is_refused_by_name(meta: object):
    document = sampled_document([7])
    document["choices"][0]["meta_info"] = meta
    assert "meta_info.output_token_logprobs" in refusal_of(document)


@pytest.mark.parametrize(
    "entry", [None, 7, [], [0.5], [0.5, "7"], [0.5, 7.0], [0.5, True], [0.5, -1], [0.5, 1 << 32]]
)
def test_an_entry_that_names_no_token_is_refused(entry: object):
    document = sampled_document([7])
    document["choices"][0]["meta_info"]["output_token_logprobs"] = [entry]
    refusal_of(document)


def test_a_count_that_differs_from_the_ids_is_refused():
    document = sampled_document([7, 8])
    document["choices"][0]["meta_info"]["completion_tokens"] = 3
    assert "3 completion tokens and returned the ids of 2" in refusal_of(document)


def test_a_count_in_the_usage_that_differs_is_refused():
    document = sampled_document([7, 8])
    document["usage"]["completion_tokens"] = 1
    assert "1 completion tokens" in refusal_of(document)


def test_a_reply_that_counts_nothing_is_refused():
    document = sampled_document([7, 8])
    del document["choices"][0]["meta_info"]["completion_tokens"], document["usage"]
    assert "does not say completion_tokens" in refusal_of(document)


@pytest.mark.parametrize("count", ["meta_info", "usage"])
def test_one_count_is_enough(count: str):
    document = sampled_document([7, 8])
    if count == "meta_info":
        del document["usage"]
    else:
        del document["choices"][0]["meta_info"]["completion_tokens"]
    assert len(parse(document).token_ids) == 2


@pytest.mark.parametrize("found", [[1, 2], [1, 2, 4], [], "123"])
@pytest.mark.parametrize("place", ["top", "choice"])
def test_a_prompt_that_the_engine_did_not_use_is_refused(found: object, place: str):
    document = sampled_document([7])
    (document if place == "top" else document["choices"][0])["prompt_token_ids"] = found
    assert "did not use the prompt" in refusal_of(document)


@pytest.mark.parametrize("place", ["top", "choice"])
def test_a_prompt_that_comes_back_equal_is_accepted(place: str):
    document = sampled_document([7])
    (document if place == "top" else document["choices"][0])["prompt_token_ids"] = PROMPT
    assert len(parse(document).token_ids) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"role": "user"},
        {"content": ["x"]},
        {"reasoning_content": 1},
        {"reasoning": {}},
        {"tool_calls": "x"},
        {"tool_calls": [1]},
        {"tool_calls": [{"function": {"name": None}}]},
    ],
)
def test_a_message_that_no_later_turn_could_render_is_refused(change: JsonObject):
    document = sampled_document([7])
    document["choices"][0]["message"].update(change)
    refusal_of(document)


def test_a_choice_without_a_message_is_refused():
    document = sampled_document([7])
    del document["choices"][0]["message"]
    assert "no choices[0].message" in refusal_of(document)


def test_a_long_body_is_shown_in_part_and_without_replay():
    shown = shown_text(b'{"error":"x","sglext":{"routed_experts":"' + b"A" * 5000)
    assert shown.startswith('{"error":"x"')
    assert "AAAA" not in shown
    assert len(shown_text(b"x" * 10_000)) == 303
