"""Samples: canonical ids, seeds, limits, stop strings, and the room that the context leaves."""

from collections.abc import Sequence

import msgspec
import pytest

from sessions.errors.unseen import SettingsError, SimRefusalError
from sessions.sim.body import ChatBody
from sessions.sim.chatml import prompt_text, reply_text
from sessions.sim.options import SimOptions
from sessions.sim.sampler import Finish, Sample, Sampler
from sessions.tokens.tokenizer import Tokenizer

USER = {"role": "user", "content": "How is it in Paris?"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "parameters": {"type": "object", "properties": {"where": {"type": "string"}}},
        },
    }
]
STOP = 151645
ROOM = 100_000


@pytest.fixture
def sampler(tokenizer: Tokenizer) -> Sampler:
    return Sampler(SimOptions(), tokenizer)


def body_of(**fields: object) -> ChatBody:
    return msgspec.convert({"messages": [USER], **fields}, ChatBody)


def sample(sampler: Sampler, room: int = ROOM, index: int = 0, **fields: object) -> Sample:
    body = body_of(**fields)
    return sampler.sample(body, sampler.prompt_of(body), index, room)


def test_ids_are_canonical_after_their_prompt(sampler: Sampler, tokenizer: Tokenizer):
    for fields in (
        {},
        {"tools": TOOLS},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"sim": {"content": "Grüße, 你好 😀\n\n- a\n- b", "reasoning": "so\n\nso"}},
        {"sim": {"content": "", "tool_calls": [{"name": "f", "arguments": {"x": "ä"}}]}},
    ):
        body = body_of(**fields)
        text = prompt_text(body.messages, thinking=body.may_think)
        prompt = sampler.prompt_of(body)
        for index in range(20):
            made = sampler.sample(body, prompt, index, ROOM)
            whole = text + tokenizer.decode(made.ids)
            assert tokenizer.encode(whole) == prompt + made.ids


def test_the_message_written_again_gives_the_same_ids(sampler: Sampler, tokenizer: Tokenizer):
    for index in range(30):
        made = sample(sampler, index=index, tools=TOOLS)
        assert made.said.calls
        assert tokenizer.encode(reply_text(made.said) + "<|im_end|>") == made.ids


def test_a_whole_reply_ends_with_the_stop_token(sampler: Sampler):
    made = sample(sampler)
    assert made.ids[-1] == STOP
    assert made.ids.count(STOP) == 1
    assert made.finish == Finish(reason="stop", matched=STOP)
    assert "<|im_end|>" not in made.said.content


def test_parsed_calls_hide_the_stop_token(sampler: Sampler):
    made = sample(sampler, tools=TOOLS)
    assert made.finish == Finish(reason="tool_calls", matched=None)
    assert made.ids[-1] == STOP


def test_every_id_has_a_log_probability_that_is_none_above_zero(sampler: Sampler):
    made = sample(sampler)
    assert len(made.logprobs) == len(made.ids)
    assert max(made.logprobs) <= 0


def test_equal_requests_differ_without_a_seed_only(sampler: Sampler, tokenizer: Tokenizer):
    assert len({tuple(sample(sampler).ids) for _ in range(5)}) == 5
    assert sample(sampler, seed=5) == sample(Sampler(SimOptions(), tokenizer), seed=5)
    assert sample(sampler, seed=5) != sample(sampler, seed=6)
    assert sample(sampler, seed=5) != sample(sampler, seed=5, index=1)


def test_a_seed_gives_another_sample_in_the_next_turn(sampler: Sampler):
    body = body_of(seed=5, messages=[USER, {"role": "assistant", "content": "x"}, USER])
    assert sampler.sample(body, [1], 0, ROOM) != sample(sampler, seed=5)


def test_a_limit_cuts_ids_and_leaves_no_stop_token(sampler: Sampler):
    whole = sample(sampler, seed=1)
    cut = sample(sampler, room=len(whole.ids) - 1, seed=1)
    assert cut.ids == whole.ids[:-1]
    assert cut.finish == Finish(reason="length")
    assert sample(sampler, room=len(whole.ids), seed=1).finish.reason == "stop"
    assert sample(sampler, room=0, seed=1).ids == []


def test_a_reply_cut_while_it_thinks_is_all_reasoning(sampler: Sampler):
    made = sample(sampler, room=5, sim={"reasoning": "one two three four five", "content": "x"})
    assert made.said.reasoning
    assert made.said.content == ""


def test_a_call_cut_by_the_limit_is_dropped(sampler: Sampler):
    whole = sample(sampler, seed=1, tools=TOOLS)
    cut = sample(sampler, room=len(whole.ids) - 4, seed=1, tools=TOOLS)
    assert list(cut.said.calls) == []
    assert cut.finish.reason == "length"
    assert cut.said.content == whole.said.content


def test_a_stop_string_ends_the_ids_at_the_token_that_completes_it(
    sampler: Sampler, tokenizer: Tokenizer
):
    script = {"reasoning": None, "content": "one two three four"}
    made = sample(sampler, stop=["four", "o three"], sim=script)
    text = tokenizer.decode(made.ids)
    assert made.finish == Finish(reason="stop", matched="o three")
    assert "o three" in text
    assert "o three" not in tokenizer.decode(made.ids[:-1])
    assert made.said.content == "one tw"
    kept = sample(sampler, stop="o three", sim=script, no_stop_trim=True)
    assert kept.said.content == "one two three"


@pytest.mark.parametrize("word", range(0, 40, 3))
def test_the_token_that_completes_a_stop_string_is_found_anywhere(
    sampler: Sampler, tokenizer: Tokenizer, word: int
):
    script = {"reasoning": None, "content": " ".join(f"w{index}x" for index in range(40))}
    made = sample(sampler, stop=f"w{word}x", sim=script)
    assert f"w{word}x" in tokenizer.decode(made.ids)
    assert f"w{word}x" not in tokenizer.decode(made.ids[:-1])


def test_special_tokens_show_only_when_neither_trimmed_nor_skipped(sampler: Sampler):
    script = {"reasoning": None, "content": "hi"}
    shown = sample(sampler, sim=script, no_stop_trim=True, skip_special_tokens=False)
    assert shown.said.content == "hi<|im_end|>"
    assert sample(sampler, sim=script, no_stop_trim=True).said.content == "hi"


def test_scripted_ids_are_sampled_as_they_are(sampler: Sampler, tokenizer: Tokenizer):
    letters = [tokenizer.encode(letter)[0] for letter in "hello"]
    made = sample(sampler, sim={"token_ids": letters})
    assert made.ids == letters != tokenizer.encode("hello")
    assert made.said.content == "hello"
    assert made.finish == Finish(reason="length")
    made = sample(sampler, sim={"token_ids": [*letters, STOP]})
    assert made.finish == Finish(reason="stop", matched=STOP)


@pytest.mark.parametrize(
    ("reason", "stops"), [("stop", True), ("tool_calls", True), ("abort", False), ("odd", False)]
)
def test_a_scripted_finish_is_reported(sampler: Sampler, reason: str, *, stops: bool):
    made = sample(sampler, sim={"finish_reason": reason})
    assert made.finish.reason == reason
    assert (made.ids[-1] == STOP) is stops


def test_no_second_think_block_is_sampled(sampler: Sampler, tokenizer: Tokenizer):
    ids = tokenizer.encode(prompt_text([USER], thinking=False))
    assert sample(sampler, input_ids=ids).said.reasoning is None
    ids = tokenizer.encode(prompt_text([USER], thinking=True))
    assert sample(sampler, input_ids=ids).said.reasoning


def test_ids_of_the_request_are_the_prompt(sampler: Sampler):
    assert sampler.prompt_of(body_of(input_ids=[7, 8])) == [7, 8]


@pytest.mark.parametrize(
    ("prompt", "limit", "room"), [(15, None, 1), (10, None, 6), (10, 6, 6), (10, 0, 0), (15, 1, 1)]
)
def test_the_room_is_the_limit_or_the_rest_of_the_context(
    tokenizer: Tokenizer, prompt: int, limit: int | None, room: int
):
    sampler = Sampler(SimOptions(context=16), tokenizer)
    assert sampler.room_for(body_of(max_tokens=limit), prompt) == room


@pytest.mark.parametrize(
    ("prompt", "limit", "says"),
    [
        (16, None, r"The input \(16 tokens\) is longer than the model's context length \(16 tok"),
        (17, 1, "The input"),
        (10, 7, "Requested token count exceeds the model's maximum context length of 16"),
    ],
)
def test_what_does_not_fit_the_context_is_refused(
    tokenizer: Tokenizer, prompt: int, limit: int | None, says: str
):
    sampler = Sampler(SimOptions(context=16), tokenizer)
    with pytest.raises(SimRefusalError, match=says):
        sampler.room_for(body_of(max_tokens=limit), prompt)


def test_the_prefix_up_to_the_last_reply_is_cached(sampler: Sampler, tokenizer: Tokenizer):
    reply = {"role": "assistant", "content": "It rains."}
    result = {"role": "tool", "content": "42"}
    for earlier, appended in (
        ([USER, reply], [USER]),
        ([USER, reply], []),
        ([USER, reply, USER, reply], [result]),
    ):
        whole = sampler.prompt_of(body_of(messages=earlier + appended))
        held = prompt_text(earlier, thinking=True).removesuffix("\n<|im_start|>assistant\n")
        found = sampler.cached_count(body_of(messages=earlier + appended), whole)
        assert found == len(tokenizer.encode(held))
    assert sampler.cached_count(body_of(), [1, 2, 3]) == 0
    assert sampler.cached_count(body_of(messages=[USER, reply, USER]), [1, 2, 3]) == 0


def test_results_of_one_reply_are_one_turn(sampler: Sampler):
    messages = [USER, {"role": "assistant"}, {"role": "tool"}, {"role": "tool"}]
    prompt = [1, STOP, 2, STOP, 3, STOP, 4]
    assert sampler.cached_count(body_of(messages=messages), prompt) == 4


def test_token_texts_are_of_single_tokens(sampler: Sampler, tokenizer: Tokenizer):
    ids = tokenizer.encode("hello there")
    assert [sampler.token_text(each) for each in ids] == ["hello", " there"]


def test_a_tokenizer_without_chatml_is_refused():
    with pytest.raises(SettingsError, match="im_end"):
        Sampler(SimOptions(), Bare())


class Bare:
    """A tokenizer of nothing."""

    vocab_size = 3

    def __init__(self) -> None:
        self.special_ids: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        return [0] * len(text)

    def decode(self, ids: Sequence[int]) -> str:
        return "x" * len(ids)
