"""Samples of real sessions: the core's own turns, from the engine's reply to the decoded arrays."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sessions.client.answers import Answer as ClientAnswer
from sessions.client.samples import Samples, parse_samples
from sessions.core.samples.default_hooks import drop_retries
from sessions.core.samples.hooks import SampleDraft, SampleHooks
from sessions.core.texts.json_text import JsonObject
from sessions.engine.engine import EngineReply
from sessions.errors.client_visible import RequestError
from sessions.errors.samples import ReplayMismatchError
from sessions.errors.sessions import GoneSessionError, UnknownSessionError
from tests.support.desk import Desk, assistant, body_of
from tests.support.engines import json_reply
from tests.support.samples import rows_for
from tests.support.waiting import wait_until_async

OpenDesk = Callable[..., Any]
LAYERS, TOPK = 3, 4


def told(desk: Desk, text: str, *, extra_rows: int = 0, **meta: Any) -> Callable[..., EngineReply]:  # noqa: ANN401 - JSON
    """An engine that says a text and gives the rows that it is asked for."""

    def answer(request: dict[str, Any]) -> EngineReply:
        document = desk.document(text)
        choice = document["choices"][0]
        choice["meta_info"] |= {"prompt_tokens": len(request["input_ids"]), **meta}
        if request.get("return_routed_experts"):
            start = request.get("routed_experts_start_len", 0)
            count = len(request["input_ids"]) + len(desk.sampled_ids(text)) - 1 - start
            rows = rows_for(count + extra_rows, LAYERS, TOPK, start=start)
            text_of_rows = base64.b64encode(rows.tobytes()).decode()
            choice["meta_info"]["routed_experts"] = text_of_rows
            document["sglext"] = {"routed_experts": text_of_rows}
        return json_reply(document)

    return answer


async def samples(desk: Desk, session: str, body: bytes = b"") -> Samples:
    response = await desk.core.samples(session, desk.request(body))
    assert response.headers["content-type"] == "application/octet-stream"
    whole = await body_of(response)
    assert int(response.headers["content-length"]) == len(whole)
    return parse_samples(ClientAnswer(status=200, headers={}, body=whole))


async def two_turns(desk: Desk) -> str:
    session: str = desk.open()
    await desk.chat(session, "one")
    await desk.chat(session, "one", assistant("first"), "two")
    return session


@pytest.mark.parametrize("incremental", [False, True])
async def test_two_turns_become_one_sample(open_desk: OpenDesk, *, incremental: bool):
    async with open_desk(routing_replay=True, incremental=incremental) as desk:
        desk.engine.answers = [
            told(desk, "first", weight_version="v1", cached_tokens=1),
            told(desk, "second", weight_version="v2", cached_tokens=5),
        ]
        session = await two_turns(desk)
        found = await samples(desk, session)
        read = await desk.read(session)
        first, second = read["records"]
        (sample,) = found.samples
        sampled = [desk.sampled_ids(text) for text in ("first", "second")]
        prompt = first["request"]["input_ids"]
        between = second["request"]["input_ids"][len(prompt) + len(sampled[0]) :]
        assert sample.tokens.tolist() == [*prompt, *sampled[0], *between, *sampled[1]]
        mask = [1] * len(sampled[0]) + [0] * len(between) + [1] * len(sampled[1])
        assert sample.loss_mask.tolist() == mask
        assert sample.rollout_log_probs.tolist() == [-0.5 * part for part in mask]
        rows = rows_for(len(sample.tokens) - 1, LAYERS, TOPK).reshape(-1, LAYERS * TOPK)
        assert sample.rollout_routed_experts is not None
        assert sample.rollout_routed_experts.tolist() == rows.tolist()
        assert sample.rollout_indexer_topk is None
        decode = desk.prompts.tokenizer.decode
        assert sample.response == decode([*sampled[0], *between, *sampled[1]])
        assert sample.response_length == len(mask)
        assert (sample.status, sample.weight_versions) == ("completed", ["v1", "v2"])
        prompts = [len(record["request"]["input_ids"]) for record in (first, second)]
        assert (sample.cached_tokens, sample.total_prompt_tokens) == (6, sum(prompts))
        assert sample.metadata == {
            "lifecycle": [
                {
                    "t0": None,
                    "t1": record["timestamp"],
                    "turn": index + 1,
                    "req_ts": record["request_timestamp"],
                    "prev_t1": first["timestamp"] if index else None,
                }
                for index, record in enumerate(read["records"])
            ]
        }
        assert found.session_metadata == read["metadata"]
        assert found.empty_reason is None


async def test_a_limit_cuts_the_last_turn_with_its_rows(open_desk: OpenDesk):
    async with open_desk(routing_replay=True) as desk:
        desk.engine.answers = [told(desk, "first"), told(desk, "second")]
        session = await two_turns(desk)
        whole = (await samples(desk, session)).samples[0]
        limit = len(whole.tokens) - 2
        cut = (await samples(desk, session, b'{"max_seq_len":%d}' % limit)).samples[0]
        assert cut.tokens.tolist() == whole.tokens[:limit].tolist()
        assert cut.status == "truncated"
        assert cut.rollout_routed_experts is not None
        assert whole.rollout_routed_experts is not None
        rows = whole.rollout_routed_experts[: limit - 1]
        assert cut.rollout_routed_experts.tolist() == rows.tolist()


async def test_a_session_without_a_sample_says_why(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open()
        found = await samples(desk, session)
        assert (found.samples, found.empty_reason) == ([], "no_records")
        assert found.session_metadata == (await desk.read(session))["metadata"]
        await desk.chat(session, "one")
        found = await samples(desk, session, b'{"max_seq_len":1}')
        assert (found.samples, found.empty_reason) == ([], "all_truncated")
        assert found.session_metadata == (await desk.read(session))["metadata"]


async def test_a_roll_back_leaves_one_turn(open_desk: OpenDesk):
    async with open_desk(routing_replay=True, incremental=True) as desk:
        desk.engine.answers = [told(desk, text) for text in ("first", "second", "other")]
        session = await two_turns(desk)
        await desk.chat(session, "one", assistant("first"), "two")
        sample = (await samples(desk, session)).samples[0]
        assert sample.response.endswith("other<|im_end|>")
        rows = rows_for(len(sample.tokens) - 1, LAYERS, TOPK).reshape(-1, LAYERS * TOPK)
        assert sample.rollout_routed_experts is not None
        assert sample.rollout_routed_experts.tolist() == rows.tolist()
        assert [turn["turn"] for turn in sample.metadata["lifecycle"]] == [1, 2]


async def test_rows_are_asked_for_from_the_checkpoint_on_and_again_when_a_turn_is_tried_again(
    open_desk: OpenDesk,
):
    async with open_desk(routing_replay=True, incremental=True) as desk:
        desk.engine.answers = [told(desk, text) for text in ("first", "second", "other", "third")]
        session = await two_turns(desk)
        history = ["one", assistant("first"), "two"]
        await desk.chat(session, *history)
        await desk.chat(session, *history, assistant("other"), "three")
        records = (await desk.read(session))["records"]
        asked = [record["request"].get("routed_experts_start_len", 0) for record in records]
        ends = [
            len(record["request"]["input_ids"]) + len(desk.sampled_ids(text))
            for record, text in zip(records, ("first", "other", "third"), strict=True)
        ]
        assert asked == [0, ends[0] - 1, ends[1] - 1]
        sent = [body.get("routed_experts_start_len", 0) for body in desk.engine.bodies]
        # The turn that was tried again began where its predecessor had begun.
        assert sent == [0, ends[0] - 1, ends[0] - 1, ends[1] - 1]


@pytest.mark.parametrize(
    "rules", [{}, {"routing_replay": True}, {"incremental": True}], ids=["no", "all", "unwanted"]
)
async def test_no_first_row_is_named_unless_only_new_rows_are_wanted(
    open_desk: OpenDesk, rules: dict[str, bool]
):
    async with open_desk(**rules) as desk:
        desk.engine.answers = [told(desk, "first"), told(desk, "second")]
        await two_turns(desk)
        assert not any("routed_experts_start_len" in body for body in desk.engine.bodies)
        wanted = [body.get("return_routed_experts", False) for body in desk.engine.bodies]
        assert wanted == [bool(rules.get("routing_replay"))] * 2


async def test_rows_that_do_not_fit_refuse_the_samples_and_not_the_session(open_desk: OpenDesk):
    async with open_desk(routing_replay=True) as desk:
        session = desk.open()
        # The width of a row must stay what it was, so a row too many shows in a later turn.
        desk.engine.answers = [
            told(desk, "first"),
            told(desk, "second", extra_rows=1),
            told(desk, "second"),
        ]
        await desk.chat(session, "one")
        await desk.chat(session, "one", assistant("first"), "two")
        with pytest.raises(ReplayMismatchError, match="turn 2 is unusable: routed_experts"):
            await samples(desk, session)
        assert await desk.contents(session) == ["first", "second"]
        # The turn sampled again is fine, and so is the session.
        await desk.chat(session, "one", assistant("first"), "two")
        assert (await samples(desk, session)).samples[0].status == "completed"


async def test_a_number_that_is_none_is_null_in_the_record_and_nan_in_the_sample(
    open_desk: OpenDesk,
):
    async with open_desk() as desk:
        document = json.dumps(desk.document("ok")).replace("[-0.5, ", "[NaN, ", 1)
        desk.engine.answers = [json_reply(document.encode())]
        session = desk.open()
        await desk.chat(session, "one")
        sample = (await samples(desk, session)).samples[0]
        assert str(sample.rollout_log_probs.tolist()[:2]) == "[nan, -0.5]"


async def test_samples_of_no_open_session_are_refused(open_desk: OpenDesk):
    async with open_desk() as desk:
        with pytest.raises(UnknownSessionError):
            await samples(desk, "nope")
        session = desk.open()
        desk.core.delete(session)
        with pytest.raises(GoneSessionError):
            await samples(desk, session)


async def test_a_bad_body_is_refused_by_name(open_desk: OpenDesk):
    async with open_desk() as desk:
        with pytest.raises(RequestError) as caught:
            await samples(desk, desk.open(), b'{"max_seq_len":-1}')
        assert caught.value.param == "max_seq_len"


async def test_a_reply_that_began_is_finished_when_the_session_is_deleted(open_desk: OpenDesk):
    async with open_desk(routing_replay=True) as desk:
        desk.engine.answers = [told(desk, "word " * 2000)]
        session = desk.open()
        await desk.chat(session, "one")
        expected = await samples(desk, session)
        response = await desk.core.samples(session, desk.request(b""))
        desk.core.delete(session)
        assert desk.replay.stored_bytes > 0
        whole = await body_of(response)
        found = parse_samples(ClientAnswer(status=200, headers={}, body=whole))
        rows = found.samples[0].rollout_routed_experts
        assert rows is not None
        assert rows.tobytes() == expected.samples[0].rollout_routed_experts.tobytes()  # type: ignore[union-attr]
        assert desk.replay.stored_bytes == 0


async def test_turns_go_on_while_hooks_wait_and_no_thread_is_left_in_the_end(open_desk: OpenDesk):
    go_on = threading.Event()

    def waiting(drafts: Sequence[SampleDraft], _: JsonObject) -> Sequence[SampleDraft]:
        go_on.wait()
        return drafts

    hooks = SampleHooks(picker=drop_retries, post_processor=waiting)
    async with open_desk(hooks=hooks) as desk:
        session = desk.open()
        await desk.chat(session, "one")
        # More than the loop has threads for everybody.
        replies = [asyncio.create_task(samples(desk, session)) for _ in range(40)]
        try:
            await wait_until_async(lambda: len(_sample_threads()) > 1, "hooks are called")
            turn = desk.chat_later(session, "one", assistant("ok"), "word " * 10_000)
            await wait_until_async(turn.done, "a turn that is rendered in a thread ends")
        finally:
            go_on.set()
            found = await asyncio.gather(*replies)
        assert {len(each.samples) for each in found} == {1}
    await wait_until_async(lambda: not _sample_threads(), "the threads end with the core")


def _sample_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("sessile-samples")]
