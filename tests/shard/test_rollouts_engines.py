"""Crowds, cancels, deaths and oddities at the engine, through the whole application.

Cases of docs/cases.md; what a part alone decides is tested with that part.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from sessions.client.answers import Answer as ClientAnswer
from sessions.client.samples import parse_samples
from sessions.engine.http_engines import HttpEngines
from sessions.tokens.prompts import PromptBuilder
from tests.support.raw_engine import Answer, Asked, RawEngine, raw_engine
from tests.support.raw_replies import length_reply
from tests.support.rollouts import (
    CHAT,
    Rollouts,
    ask,
    call,
    chat,
    create,
    error_of,
    message_of,
    open_parts,
    user,
)
from tests.support.turn_replies import Sampler
from tests.support.waiting import wait_until_async

Change = Callable[[dict[str, Any]], None]


def engines_of(rollouts: Rollouts) -> HttpEngines:
    engines = rollouts.core._engine
    assert isinstance(engines, HttpEngines)
    return engines


def answers(prompts: PromptBuilder, *changes: Change) -> Callable[[Asked], Answer]:
    """Good replies, changed in turn, the last change for ever."""
    sampler = Sampler(prompts)
    left = list(changes)

    def answer_of(asked: Asked) -> Answer:
        document = sampler.document(asked)
        if left:
            (left.pop(0) if len(left) > 1 else left[0])(document)
        return Answer(length_reply(json.dumps(document).encode()))

    return answer_of


@asynccontextmanager
async def rollouts_on(
    prompts: PromptBuilder, *changes: Change, **settings: str
) -> AsyncIterator[tuple[Rollouts, RawEngine]]:
    """The application on an engine that gives changed replies."""
    async with (
        raw_engine(answers(prompts, *changes)) as engine,
        open_parts(prompts, f"http://127.0.0.1:{engine.port}", **settings) as rollouts,
    ):
        yield rollouts, engine


def session_of(asked: Asked) -> str:
    """The one routing key of a request."""
    keys = [line for line in asked.lines if line.lower().startswith(b"x-smg-routing-key:")]
    assert len(keys) == 1
    return keys[0].partition(b": ")[2].decode()


# --- crowds and cancels: C-T42, C-T43


def chat_body(*messages: object) -> bytes:
    return json.dumps({"messages": [user(message) for message in messages]}).encode()


async def test_300_chats_are_at_the_engine_at_once(prompts: PromptBuilder):
    async with rollouts_on(prompts) as (rollouts, engine):
        sessions = [(await create(rollouts.client))["session_id"] for _ in range(300)]
        engine.gate.clear()
        chats = [
            asyncio.create_task(ask(rollouts.asgi, "POST", f"/sessions/{s}{CHAT}", chat_body("hi")))
            for s in sessions
        ]
        await wait_until_async(lambda: len(engine.asked) == 300, "the engine has all of them")
        assert engines_of(rollouts).in_use == [300]
        assert {session_of(asked) for asked in engine.asked} == set(sessions)
        engine.gate.set()
        for turn in await asyncio.gather(*chats):
            assert turn.status_code == 200
            assert "x-turn-recorded" not in turn.headers
        assert engines_of(rollouts).in_use == [0]
        assert rollouts.core.turns.counts.recorded == 300


async def test_after_500_cancels_the_pool_is_empty_and_100_chats_work(prompts: PromptBuilder):
    async with rollouts_on(prompts, cancel_on_disconnect="1") as (rollouts, engine):
        sessions = [(await create(rollouts.client))["session_id"] for _ in range(50)]
        gone = [{"type": "http.request", "body": chat_body("hi")}, {"type": "http.disconnect"}]
        for wave in range(10):
            # Half of the waves find the engine waiting, half of them answering.
            (engine.gate.clear if wave % 2 else engine.gate.set)()
            ended = await asyncio.gather(
                *(
                    call(rollouts.asgi, "POST", f"/sessions/{s}{CHAT}", messages=gone)
                    for s in sessions
                )
            )
            assert {sent[0]["status"] for sent in ended} <= {200, 499}
            assert not rollouts.core.turns
            assert engines_of(rollouts).in_use == [0]
        assert rollouts.core.turns.counts.failed >= 250
        engine.gate.set()
        for text in ("hi", "again"):
            body = chat_body(text)
            turns = [ask(rollouts.asgi, "POST", f"/sessions/{s}{CHAT}", body) for s in sessions]
            assert {turn.status_code for turn in await asyncio.gather(*turns)} == {200}
        assert engines_of(rollouts).in_use == [0]
        for session in sessions:
            read = (await rollouts.client.get(f"/sessions/{session}")).json()
            assert len(read["records"]) == 1
        assert rollouts.core.ingest.held_bytes == 0


# --- several engines: C-T45


async def test_sessions_of_a_dead_engine_go_on_at_another_one_under_their_key(
    prompts: PromptBuilder,
):
    async with raw_engine(answers(prompts)) as alive, raw_engine(answers(prompts)) as other:
        dying = asyncio.Event()

        async def serve_until_dead(ready: asyncio.Future[RawEngine]) -> None:
            async with raw_engine(answers(prompts)) as engine:
                ready.set_result(engine)
                await dying.wait()

        ready: asyncio.Future[RawEngine] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve_until_dead(ready))
        dead = await ready
        urls = ",".join(f"http://127.0.0.1:{engine.port}" for engine in (alive, dead, other))
        async with open_parts(prompts, urls) as rollouts:
            sessions = [(await create(rollouts.client))["session_id"] for _ in range(6)]
            histories: dict[str, list[object]] = {session: [] for session in sessions}

            async def turn(session: str) -> None:
                history = histories[session]
                history.append("more")
                history.append(message_of(await chat(rollouts.client, session, *history)))

            for session in sessions:
                await turn(session)
            assert [len(engine.asked) for engine in (alive, dead, other)] == [2, 2, 2]
            lost = {session_of(asked) for asked in dead.asked}
            dying.set()
            await serving
            for _ in range(2):
                for session in sessions:
                    await turn(session)
            by_engine = [[session_of(asked) for asked in e.asked] for e in (alive, other)]
            assert sum(map(len, by_engine)) == 2 * (2 + 4) + 2 * 2
            # Each of the lost ones moved once, to one engine, and no other did.
            assert not set(by_engine[0]) & set(by_engine[1])
            assert lost < set(by_engine[0]) | set(by_engine[1])
            for session in sessions:
                read = (await rollouts.client.get(f"/sessions/{session}")).json()
                assert len(read["records"]) == 3
            # What ended need not be remembered.
            assert engines_of(rollouts).affinity_count == 6
            for session in sessions:
                await rollouts.client.delete(f"/sessions/{session}")
            assert engines_of(rollouts).affinity_count == 0


# --- what a reply may hold: C-T32, C-T34, C-T35, C-T37, C-T46


async def test_two_choices_are_a_400_and_never_silently_one(prompts: PromptBuilder):
    async with rollouts_on(prompts) as (rollouts, engine):
        session = (await create(rollouts.client))["session_id"]
        response = await chat(rollouts.client, session, "hi", n=2)
        assert error_of(response, 400)["param"] == "n"
        assert engine.asked == []


async def test_an_aborted_turn_ends_its_sample_and_the_session_goes_on(prompts: PromptBuilder):
    def aborted(document: dict[str, Any]) -> None:
        (choice,) = document["choices"]
        choice["finish_reason"] = "abort"
        choice["meta_info"]["weight_version"] = "v1"
        choice["meta_info"]["output_token_logprobs"][-2:] = []
        choice["meta_info"]["completion_tokens"] -= 2
        document["usage"]["completion_tokens"] -= 2
        experts = choice["meta_info"]["routed_experts"]
        sampler, rows = Sampler(prompts), 9 + 6 - 1
        assert experts == sampler.experts_of(rows)
        choice["meta_info"]["routed_experts"] = sampler.experts_of(rows - 2)

    def newer(document: dict[str, Any]) -> None:
        document["choices"][0]["meta_info"]["weight_version"] = "v2"

    async def sample_of(rollouts: Rollouts, session: str) -> tuple[str, list[str]]:
        response = await rollouts.client.post(f"/sessions/{session}/samples")
        content = ClientAnswer(status=response.status_code, headers={}, body=response.content)
        (sample,) = parse_samples(content).samples
        assert len(sample.rollout_log_probs) == len(sample.loss_mask) == sample.response_length
        assert sample.rollout_routed_experts is not None
        assert len(sample.rollout_routed_experts) == len(sample.tokens) - 1
        return sample.status, list(sample.weight_versions)

    async with rollouts_on(prompts, aborted, newer) as (rollouts, _):
        session = (await create(rollouts.client))["session_id"]
        partial = await chat(rollouts.client, session, "hi")
        message = message_of(partial)
        assert partial.json()["choices"][0]["finish_reason"] == "abort"
        assert await sample_of(rollouts, session) == ("aborted", ["v1"])
        # A turn on top of the partial one is recorded, and stays out of the sample: there is a gap.
        for more in (["hi", message, "go on"], ["hi", message, "go on", message, "and on"]):
            message_of(await chat(rollouts.client, session, *more))
            assert await sample_of(rollouts, session) == ("aborted", ["v1"])

    async with rollouts_on(prompts, aborted, newer) as (rollouts, _):
        session = (await create(rollouts.client))["session_id"]
        message_of(await chat(rollouts.client, session, "hi"))
        message_of(await chat(rollouts.client, session, "hi"))  # sampled anew, the turn is whole
        assert await sample_of(rollouts, session) == ("completed", ["v2"])


@pytest.mark.parametrize(
    "dropped", ["meta_info", "output_token_logprobs", "completion_tokens", "usage"]
)
async def test_a_router_that_drops_token_fields_is_named(dropped: str, prompts: PromptBuilder):
    def drop(document: dict[str, Any]) -> None:
        (choice,) = document["choices"]
        if dropped in ("completion_tokens", "usage"):  # one of the two is enough
            del choice["meta_info"]["completion_tokens"]
            del document["usage"]
            return
        (choice if dropped in choice else choice["meta_info"]).pop(dropped)

    async with rollouts_on(prompts, drop, lambda _: None) as (rollouts, _):
        session = (await create(rollouts.client))["session_id"]
        error = error_of(await chat(rollouts.client, session, "hi"), 502)
        assert error["code"] == "engine_reply_unusable"
        assert ("completion_tokens" if dropped == "usage" else dropped) in error["message"]
        assert (await rollouts.client.get(f"/sessions/{session}")).json()["records"] == []
        message_of(await chat(rollouts.client, session, "hi"))


@pytest.mark.parametrize(
    "logprobs", [None, {"content": None}, {"content": [{"token": "t", "top_logprobs": None}]}]
)
@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities_that_are_null_stay_null(
    logprobs: object, prompts: PromptBuilder, *, stream: bool
):
    def change(document: dict[str, Any]) -> None:
        document["choices"][0]["logprobs"] = logprobs

    async with rollouts_on(prompts, change) as (rollouts, _):
        session = (await create(rollouts.client))["session_id"]
        fields = {"logprobs": True, "top_logprobs": 2, "stream": stream}
        response = await chat(rollouts.client, session, "hi", **fields)
        assert response.status_code == 200
        if not stream:
            assert response.json()["choices"][0]["logprobs"] == logprobs
        (record,) = (await rollouts.client.get(f"/sessions/{session}")).json()["records"]
        assert record["response"]["choices"][0]["logprobs"] == logprobs


async def test_fields_that_we_do_not_know_pass_both_ways(prompts: PromptBuilder):
    extras = {
        "reasoning_content": "hm",
        "reasoning": "hm",
        "refusal": None,
        "annotations": [{"type": "url_citation", "url_citation": {"url": "x"}}],
        "audio": None,
        "x_unknown": {"a": [1, None, "\u2028"]},
    }

    def change(document: dict[str, Any]) -> None:
        document["choices"][0]["message"] |= extras
        document["x_top"] = {"b": 1}

    async with rollouts_on(prompts, change) as (rollouts, engine):
        session = (await create(rollouts.client))["session_id"]
        asked = {"x_request": {"c": [1.5, None]}, "metadata": {"d": "e"}}
        response = await chat(rollouts.client, session, "hi", **asked)
        message = message_of(response)
        assert message == {"role": "assistant", "content": "ok", **extras}
        assert response.json()["x_top"] == {"b": 1}
        history = [{"role": "user", "content": "hi", "name": "n"}, message, "more"]
        first = {"role": "user", "content": "hi", "name": "n", "x": 1}
        await chat(rollouts.client, session, first)
        message_of(await chat(rollouts.client, session, *history))
        sent = [json.loads(asked.body) for asked in engine.asked]
        assert {name: sent[0][name] for name in asked} == asked
        assert sent[1]["messages"] == [first]
        assert sent[2]["messages"][1] == message


# --- deletes: D29


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
async def test_a_session_deleted_while_its_reply_arrives_answers_it_and_keeps_nothing(
    share: float, prompts: PromptBuilder
):
    sampler = Sampler(prompts, layers=64, topk=64)
    rest = b""

    def answer_of(asked: Asked) -> Answer:
        nonlocal rest
        reply = length_reply(sampler.body(asked))
        rest = reply[int(len(reply) * share) :]
        return Answer(reply[: int(len(reply) * share)])

    async with (
        raw_engine(answer_of) as engine,
        open_parts(prompts, f"http://127.0.0.1:{engine.port}") as rollouts,
    ):
        session = (await create(rollouts.client))["session_id"]
        turn = asyncio.create_task(chat(rollouts.client, session, "hi"))
        await wait_until_async(lambda: bool(rest), "the engine answers")
        if share:
            await wait_until_async(lambda: rollouts.kept_bytes > (0, 0), "a part of it is here")
        deleted = await rollouts.client.delete(f"/sessions/{session}")
        assert deleted.status_code == 204
        assert not turn.done()
        (writer,) = engine._writers
        writer.write(rest)
        response = await turn
        assert message_of(response)["content"] == "ok"
        assert response.headers["x-turn-recorded"] == "false"
        assert rollouts.kept_bytes == (0, 0)
        assert engines_of(rollouts).in_use == [0]
        late: httpx.Response = await chat(rollouts.client, session, "hi")
        assert error_of(late, 410)["code"] == "session_gone"
