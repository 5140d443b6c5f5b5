"""What every dialect must do: one suite for all of them."""

import json
import math
from array import array
from typing import Any

import pytest

from sessions.core.dialects.choice import DIALECTS
from sessions.core.dialects.dialect import EngineDialect, ReplayWish
from sessions.core.engine_replies.prompt_echo import SENT_IDS
from sessions.core.engine_replies.sampled import Sampled
from sessions.core.texts.json_text import JsonObject
from sessions.errors.engine import EngineReplyUnusableError
from tests.support.dialects import document_of

PROMPT = [1, 2, 3]


class Bench:
    """One dialect under test."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dialect: EngineDialect = DIALECTS[name]()

    def document(self, ids: list[int], **parts: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        parts.setdefault("prompt", PROMPT)
        return document_of(self.name, ids, **parts)

    def read(self, document: object) -> Sampled:
        text = json.dumps(document).encode()
        return self.dialect.read(json.loads(text), text, array("I", PROMPT))

    def refusal_of(self, document: object) -> str:
        with pytest.raises(EngineReplyUnusableError) as caught:
            self.read(document)
        assert caught.value.status == 502
        return caught.value.message


@pytest.fixture(params=list(DIALECTS))
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def test_a_dialect_has_the_name_that_chooses_it(bench: Bench):
    assert bench.dialect.name == bench.name


def test_ids_and_log_probabilities_are_read(bench: Bench):
    sampled = bench.read(bench.document([7, 8, 9], content="x"))
    assert sampled.token_ids.tolist() == [7, 8, 9]
    assert sampled.log_probs.tolist() == [-0.5] * 3
    assert (sampled.finish_reason, sampled.prompt_count) == ("stop", 3)
    assert sampled.message is sampled.reply["choices"][0]["message"]


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
def test_odd_but_valid_messages_are_accepted(bench: Bench, message: JsonObject):
    document = bench.document([7])
    document["choices"][0]["message"] = message
    read = bench.read(document).message
    assert read["role"] == "assistant"
    assert read["content"] == message.get("content")


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"reasoning": "hm"}, {"reasoning": "hm", "reasoning_content": "hm"}),
        (
            {"reasoning": "hm", "reasoning_content": None},
            {"reasoning": "hm", "reasoning_content": "hm"},
        ),
        ({"reasoning_content": "hm"}, {"reasoning_content": "hm"}),
        (
            {"reasoning": "a", "reasoning_content": "b"},
            {"reasoning": "a", "reasoning_content": "b"},
        ),
        ({"reasoning": ""}, {"reasoning": ""}),
        ({"reasoning": None}, {"reasoning": None}),
        ({}, {}),
    ],
)
def test_reasoning_is_found_under_one_name_and_nothing_is_lost(
    bench: Bench, told: JsonObject, expected: JsonObject
):
    message = bench.read(bench.document([7], **told)).message
    found = {key: value for key, value in message.items() if key.startswith("reasoning")}
    assert found == expected


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "abort", "new", None])
def test_any_finish_reason_is_accepted(bench: Bench, reason: str | None):
    sampled = bench.read(bench.document([7], finish_reason=reason))
    assert sampled.finish_reason == (reason or "")


def test_no_sampled_token_is_accepted(bench: Bench):
    assert len(bench.read(bench.document([])).token_ids) == 0


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
def test_a_reply_without_choices_is_refused_with_its_text(bench: Bench, document: object):
    message = bench.refusal_of(document)
    assert "has no choices" in message
    assert json.dumps(document)[:20] in message


def test_a_count_in_the_usage_that_differs_is_refused(bench: Bench):
    document = bench.document([7, 8])
    document["usage"]["completion_tokens"] = 1
    assert "1 completion tokens and returned the ids of 2" in bench.refusal_of(document)


@pytest.mark.parametrize("found", [[1, 2], [1, 2, 4], [], "123"])
@pytest.mark.parametrize("place", ["top", "choice"])
def test_a_prompt_that_the_engine_did_not_use_is_refused(bench: Bench, found: object, place: str):
    document = bench.document([7])
    (document if place == "top" else document["choices"][0])["prompt_token_ids"] = found
    assert "did not use the prompt" in bench.refusal_of(document)


@pytest.mark.parametrize("place", ["top", "choice"])
def test_a_prompt_that_comes_back_equal_is_accepted(bench: Bench, place: str):
    document = bench.document([7], prompt=None)
    (document if place == "top" else document["choices"][0])["prompt_token_ids"] = PROMPT
    assert len(bench.read(document).token_ids) == 1


def test_an_echo_that_was_compared_already_is_accepted(bench: Bench):
    document = bench.document([7])
    document["prompt_token_ids"] = SENT_IDS
    sampled = bench.dialect.read(document, b"", array("I", PROMPT))
    assert sampled.token_ids.tolist() == [7]


def test_a_missing_echo_is_refused_and_the_setting_named(bench: Bench):
    message = bench.refusal_of(bench.document([7], prompt=None))
    assert "prompt_token_ids" in message
    assert "SESSIONS_PROMPT_ECHO" in message


def test_a_missing_echo_may_be_accepted_but_no_other_count(bench: Bench):
    lenient = DIALECTS[bench.name](is_echo_required=False)
    document = bench.document([7], prompt=None)
    for told in (None, len(PROMPT)):
        document["usage"]["prompt_tokens"] = told
        assert lenient.read(document, b"", array("I", PROMPT)).token_ids.tolist() == [7]
    document["usage"]["prompt_tokens"] = 2
    with pytest.raises(EngineReplyUnusableError, match="counts 2 prompt tokens"):
        lenient.read(document, b"", array("I", PROMPT))


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
def test_a_message_that_no_later_turn_could_render_is_refused(bench: Bench, change: JsonObject):
    document = bench.document([7])
    document["choices"][0]["message"].update(change)
    bench.refusal_of(document)


def test_a_choice_without_a_message_is_refused(bench: Bench):
    document = bench.document([7])
    del document["choices"][0]["message"]
    assert "no choices[0].message" in bench.refusal_of(document)


def test_a_log_probability_that_is_no_number_is_nan_and_the_turn_counts(bench: Bench):
    document = bench.document([7])
    choice = document["choices"][0]
    choice["logprobs"]["content"][0]["logprob"] = None
    if "meta_info" in choice:
        choice["meta_info"]["output_token_logprobs"][0][0] = None
    assert math.isnan(bench.read(document).log_probs[0])


def test_a_clients_fields_stay_and_the_prompt_is_put_in(bench: Bench):
    body = {"model": "m", "temperature": 0.5, "logprobs": False}
    bench.dialect.put(body, "the ids", ReplayWish())
    assert list(body)[:3] == ["model", "temperature", "logprobs"]
    assert body["temperature"] == 0.5
    assert body["logprobs"] is True
    assert json.dumps(body).count('"the ids"') == 1


def test_rows_are_wished_from_where_they_are_missing(bench: Bench):
    field = {"sglang": "routed_experts_start_len", "vllm": "routed_experts_prompt_start"}
    name = field[bench.name]
    for start, expected in ((0, None), (5, 5)):
        body: JsonObject = {name: 99}
        bench.dialect.put(body, [], ReplayWish(is_wanted=True, start_row=start))
        assert body.get(name) == expected


def test_the_clients_own_wish_for_rows_passes_when_we_have_none(bench: Bench):
    body: JsonObject = {"return_routed_experts": True, "routed_experts_prompt_start": 1}
    bench.dialect.put(body, [], ReplayWish())
    assert body["return_routed_experts"] is True
    assert body["routed_experts_prompt_start"] == 1
