"""The same request more than once: one sample, one record, one reply for all who wait.

C-T47 and C-T48 of docs/cases.md; what marks a retry and what is kept is tested with the parts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from starlette.responses import Response

from sessions.core.http_exchange.client_request import ClientRequest
from sessions.errors.engine import EngineTimeoutError
from sessions.errors.group import ReplayBudgetError
from sessions.errors.turns import IdempotencyKeyReusedError
from tests.support.desk import Desk, assistant, body_of, is_recorded, user
from tests.support.engines import json_reply
from tests.support.waiting import wait_until_async

OpenDesk = Callable[..., Any]
Headers: TypeAlias = list[tuple[bytes, bytes]]

FIRST = [(b"x-stainless-retry-count", b"0")]
AGAIN = [(b"x-stainless-retry-count", b"1")]
KEY = [(b"idempotency-key", b"turn 1")]


def body(*messages: object, **fields: object) -> bytes:
    return json.dumps({"messages": [user(m) for m in messages], **fields}).encode()


async def attempt(desk: Desk, session: str, raw: bytes, headers: Headers) -> Response:
    return await desk.core.chat(session, desk.request(raw, headers))


class Client:
    """One attempt of a client of its own, that may hang up."""

    def __init__(self, desk: Desk, session: str, raw: bytes, headers: Headers) -> None:
        self.gone = asyncio.Event()
        self.is_answered = False

        async def wait_gone() -> None:
            await self.gone.wait()

        request = ClientRequest(
            method="POST", query=b"", headers=headers, body=raw, wait_gone=wait_gone
        )
        self.reply = asyncio.create_task(self._chat(desk, session, request))

    async def _chat(self, desk: Desk, session: str, request: ClientRequest) -> tuple[Any, bytes]:
        response = await desk.core.chat(session, request)
        self.is_answered = True
        return response, await body_of(response)

    async def body(self) -> bytes:
        return (await self.reply)[1]


async def at_the_engine(desk: Desk, count: int = 1) -> None:
    await wait_until_async(lambda: desk.engine.waiting == count, f"{count} turns at the engine")


async def begun(*clients: Client) -> None:
    """All attempts have found out what they wait for."""
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(client.reply.done() for client in clients)


FORMS: Any = [
    {},
    {"logprobs": True},
    {"return_prompt_token_ids": True},
    {"stream": True},
    {"stream": True, "stream_options": {"include_usage": True}, "logprobs": True},
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("first", "again"), [(FIRST, AGAIN), ([], AGAIN), (KEY, KEY)])
async def test_a_retry_after_the_commit_gets_the_reply_that_was_lost(
    first: Headers,
    again: Headers,
    form: dict[str, Any],
    open_desk: OpenDesk,
):
    async with open_desk() as desk:
        document = desk.document("one")
        desk.engine.answers = [json_reply(document, headers=[("x-trace", "7")]), desk.says("two")]
        session, raw = desk.open(), body("hi", **form)
        lost = await attempt(desk, session, raw, first)
        replies = [await attempt(desk, session, raw, again) for _ in range(2)]
        for reply in replies:
            assert reply.body == lost.body
            assert reply.raw_headers == lost.raw_headers
            assert is_recorded(reply)
        assert len(desk.engine.requests) == 1
        assert await desk.contents(session) == ["one"]


@pytest.mark.parametrize("headers", [[], FIRST])
async def test_the_same_body_without_a_mark_is_a_new_sample(headers: Headers, open_desk: OpenDesk):
    async with open_desk() as desk:
        desk.engine.answers = [desk.says("one"), desk.says("two")]
        session, raw = desk.open(), body("hi")
        for _ in range(2):
            await attempt(desk, session, raw, headers)
        assert await desk.contents(session) == ["two"]
        assert len(desk.engine.requests) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("again", [AGAIN, FIRST, KEY])
async def test_an_attempt_joins_its_like_in_flight(
    again: Headers, open_desk: OpenDesk, *, stream: bool
):
    async with open_desk() as desk:
        session, raw = desk.open(), body("hi", stream=stream)
        desk.engine.gate.clear()
        clients = [Client(desk, session, raw, KEY)]
        await at_the_engine(desk)
        clients += [Client(desk, session, raw, again) for _ in range(3)]
        await begun(*clients)
        desk.engine.gate.set()
        bodies = {await client.body() for client in clients}
        assert len(bodies) == 1
        for client in clients:
            assert is_recorded((await client.reply)[0])
        assert len(desk.engine.requests) == 1
        assert len((await desk.read(session))["records"]) == 1
        assert desk.core.turns.counts.recorded == 1


async def test_who_joins_a_slow_stream_is_kept_waiting_by_comments_of_its_own(open_desk: OpenDesk):
    async with open_desk(keepalive_s=0.01) as desk:
        session, raw = desk.open(), body("hi", stream=True)
        desk.engine.gate.clear()
        first = Client(desk, session, raw, FIRST)
        await at_the_engine(desk)
        second = Client(desk, session, raw, AGAIN)
        await wait_until_async(
            lambda: first.is_answered and second.is_answered, "both streams have begun"
        )
        desk.engine.gate.set()
        for client in (first, second):
            text = await client.body()
            assert text.startswith(b": waiting for the engine\n\n")
            assert text.endswith(b"data: [DONE]\n\n")
        assert len(desk.engine.requests) == 1


async def test_who_joins_a_failing_turn_gets_its_error_and_who_comes_later_tries_again(
    open_desk: OpenDesk,
):
    async with open_desk(EngineTimeoutError("silent"), json_reply({"message": "no"}, 418)) as desk:
        desk.engine.answers.append(desk.says("three"))
        session, raw = desk.open(), body("hi")
        for failed in (1, 2):
            desk.engine.gate.clear()
            clients = [Client(desk, session, raw, AGAIN)]
            await at_the_engine(desk)
            clients += [Client(desk, session, raw, AGAIN)]
            await begun(*clients)
            desk.engine.gate.set()
            done = await asyncio.gather(*(c.reply for c in clients), return_exceptions=True)
            assert len(desk.engine.requests) == failed
            if failed == 1:
                assert done[0] is done[1]
                assert isinstance(done[0], EngineTimeoutError)
                assert done[0].is_unrecorded_turn
            else:
                for response, text in done:  # type: ignore[misc]
                    assert response.status_code == 418
                    assert not is_recorded(response)
                    assert b'"no"' in text
        await attempt(desk, session, raw, AGAIN)
        assert await desk.contents(session) == ["three"]


async def test_who_joins_a_turn_that_is_not_recorded_is_told_so(open_desk: OpenDesk):
    async with open_desk() as desk:
        session, raw = desk.open(), body("hi")
        desk.engine.gate.clear()
        clients = [Client(desk, session, raw, FIRST)]
        await at_the_engine(desk)
        clients.append(Client(desk, session, raw, AGAIN))
        await begun(*clients)
        desk.core.delete(session)
        desk.engine.gate.set()
        for client in clients:
            response, _ = await client.reply
            assert response.status_code == 200
            assert not is_recorded(response)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_is_cancelled_when_the_last_of_its_clients_hangs_up(
    open_desk: OpenDesk, *, stream: bool
):
    async with open_desk(cancel_on_disconnect=True) as desk:
        session, raw = desk.open(), body("hi", stream=stream)
        desk.engine.gate.clear()
        first = Client(desk, session, raw, FIRST)
        await at_the_engine(desk)
        second = Client(desk, session, raw, AGAIN)
        await begun(first, second)
        first.gone.set()
        assert (await first.reply)[0].status_code == 499
        assert desk.engine.cancelled == 0
        third = Client(desk, session, raw, AGAIN)
        await begun(second, third)
        for client in (second, third):
            client.gone.set()
            await client.reply
        assert desk.engine.cancelled == 1
        assert len((await desk.read(session))["metadata"]["cancelled_turns"]) == 1
        # It is no turn to join any more.
        desk.engine.gate.set()
        assert is_recorded(await attempt(desk, session, raw, AGAIN))
        assert len(desk.engine.requests) == 2


async def test_who_stays_gets_the_turn_of_a_client_that_hung_up(open_desk: OpenDesk):
    async with open_desk(cancel_on_disconnect=True) as desk:
        session, raw = desk.open(), body("hi")
        desk.engine.gate.clear()
        first = Client(desk, session, raw, FIRST)
        await at_the_engine(desk)
        second = Client(desk, session, raw, AGAIN)
        await begun(first, second)
        first.gone.set()
        await first.reply
        desk.engine.gate.set()
        assert is_recorded((await second.reply)[0])
        assert await desk.contents(session) == ["ok"]
        assert "cancelled_turns" not in (await desk.read(session))["metadata"]


async def test_a_retry_of_the_newest_turn_is_answered_while_the_next_one_runs(open_desk: OpenDesk):
    async with open_desk() as desk:
        desk.engine.answers = [desk.says("one"), desk.says("two")]
        session, raw = desk.open(), body("hi")
        lost = await attempt(desk, session, raw, FIRST)
        desk.engine.gate.clear()
        later = Client(desk, session, body("hi", assistant("one"), "more"), FIRST)
        await at_the_engine(desk)
        assert (await attempt(desk, session, raw, AGAIN)).body == lost.body
        desk.engine.gate.set()
        await later.reply
        assert await desk.contents(session) == ["one", "two"]
        assert len(desk.engine.requests) == 2


async def test_a_retry_of_a_turn_that_was_replaced_is_a_new_sample(open_desk: OpenDesk):
    async with open_desk() as desk:
        desk.engine.answers = [desk.says("one"), desk.says("two"), desk.says("three")]
        session = desk.open()
        await attempt(desk, session, body("hi"), FIRST)
        await attempt(desk, session, body("hello"), FIRST)
        await attempt(desk, session, body("hi"), AGAIN)
        assert await desk.contents(session) == ["three"]


async def test_a_key_that_comes_with_another_body_is_refused_and_changes_nothing(
    open_desk: OpenDesk,
):
    async with open_desk() as desk:
        session, other = desk.open(), desk.open()
        await attempt(desk, session, body("hi"), KEY)
        with pytest.raises(IdempotencyKeyReusedError) as caught:
            await attempt(desk, session, body("hello"), KEY)
        assert (caught.value.status, caught.value.code) == (422, "idempotency_key_reused")
        assert caught.value.is_unrecorded_turn
        assert await desk.contents(session) == ["ok"]
        # Each session has its own keys.
        await attempt(desk, other, body("hello"), KEY)
        assert len(desk.engine.requests) == 2


async def test_a_retry_is_answered_though_no_turn_may_be_begun(open_desk: OpenDesk):
    async with open_desk() as desk:
        session, raw = desk.open(), body("hi")
        lost = await attempt(desk, session, raw, FIRST)

        def refuse() -> None:
            raise ReplayBudgetError("full")

        desk.core._replay_budget.check_turn = refuse
        with pytest.raises(ReplayBudgetError):
            await attempt(desk, session, raw, FIRST)
        assert (await attempt(desk, session, raw, AGAIN)).body == lost.body


async def test_a_full_session_still_answers_the_retry_of_its_last_turn(open_desk: OpenDesk):
    async with open_desk() as desk:
        session, raw = desk.open(max_turns=1), body("hi")
        lost = await attempt(desk, session, raw, FIRST)
        assert (await attempt(desk, session, raw, AGAIN)).body == lost.body
        assert len(desk.engine.requests) == 1


async def test_in_a_tree_the_same_body_in_flight_is_a_sibling_and_a_retry_joins(
    open_desk: OpenDesk,
):
    async with open_desk() as desk:
        desk.engine.answers = [desk.says("one"), desk.says("two")]
        session, raw = desk.open(mode="tree"), body("hi")
        desk.engine.gate.clear()
        clients = [Client(desk, session, raw, FIRST) for _ in range(2)]
        await at_the_engine(desk, 2)
        clients.append(Client(desk, session, raw, AGAIN))
        await begun(*clients)
        desk.engine.gate.set()
        first, second, joined = [await client.body() for client in clients]
        assert first != second
        assert joined == second
        assert await desk.contents(session) == ["one", "two"]


async def test_in_a_tree_each_branch_answers_the_retry_of_its_newest_turn(open_desk: OpenDesk):
    async with open_desk() as desk:
        desk.engine.answers = [desk.says(text) for text in ("root", "left", "right", "again")]
        session = desk.open(mode="tree")
        root = body("hi")
        left, right = [body("hi", assistant("root"), side) for side in ("left", "right")]
        lost = [await attempt(desk, session, raw, FIRST) for raw in (root, left, right)]
        for raw, reply in ((left, lost[1]), (right, lost[2])):
            assert (await attempt(desk, session, raw, AGAIN)).body == reply.body
        assert len(desk.engine.requests) == 3
        # Others have gone on from the root: who asks for it again gets a new sample.
        await attempt(desk, session, root, AGAIN)
        assert await desk.contents(session) == ["root", "left", "right", "again"]
