"""Every fault at every byte of a reply of 2 KiB: the right error, and the next exchange works."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest

from sessions.engine.engine import EngineRequest
from sessions.engine.http_engines import HttpEngines
from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.engine import EngineTimeoutError, EngineUnreachableError
from tests.support.loops import BOTH_LOOPS, Backend
from tests.support.raw_engine import OK, Answer, Asked, RawEngine, Then, raw_engine
from tests.support.raw_replies import BODY, REPLIES, KeepingSink, length_reply

AT_ONCE = 300
GOOD = "/good"


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


def cases_of(raw: bytes, backend: Backend) -> range:
    """Every byte on the loop of production, every seventh on the other."""
    return range(0, len(raw), 1 if backend[1]["use_uvloop"] else 7)


def ask(target: str) -> EngineRequest:
    return EngineRequest(method="POST", target=target.encode(), headers=[], body=b"body")


@asynccontextmanager
async def faulty(
    fault_at: Callable[[int], Answer], timeout_s: float = 30
) -> AsyncIterator[tuple[HttpEngines, RawEngine]]:
    """An engine whose target `/n` has the fault of case n, and a client."""

    def answer_of(asked: Asked) -> Answer:
        return Answer(OK) if asked.target == GOOD else fault_at(int(asked.target[1:]))

    async with raw_engine(answer_of) as engine:
        client = HttpEngines(
            [f"http://127.0.0.1:{engine.port}"], timeout_s=timeout_s, connect_timeout_s=30
        )
        try:
            yield client, engine
        finally:
            await client.close()


async def play(
    client: HttpEngines, cases: range, case: Callable[[int], Coroutine[None, None, None]]
):
    """All cases, many at once, each followed by a good exchange; then nothing is left in use."""

    async def one(number: int) -> None:
        await case(number)
        assert (await client.exchange(ask(GOOD))).body == b"ok"

    for start in range(0, len(cases), AT_ONCE):
        await asyncio.gather(*map(one, cases[start : start + AT_ONCE]))
        assert client.in_use == [0]


async def error_at(client: HttpEngines, number: int) -> ClientVisibleError:
    sink = KeepingSink()
    with pytest.raises(ClientVisibleError) as caught:
        await client.exchange(ask(f"/{number}"), sink.open if number % 2 else None)
    assert BODY.startswith(sink.data)
    return caught.value


@pytest.mark.parametrize("then", [Then.CLOSE, Then.RESET])
@pytest.mark.parametrize("name", ["length", "chunked", "zstd"])
async def test_a_reply_that_breaks_off_is_a_502(name: str, then: Then, anyio_backend: Backend):
    raw = REPLIES[name]
    async with faulty(lambda cut: Answer(raw[:cut], then)) as (client, engine):

        async def case(number: int) -> None:
            error = await error_at(client, number)
            assert isinstance(error, EngineUnreachableError), number
            assert (error.status, error.type) == (502, "upstream_error")

        cases = cases_of(raw, anyio_backend)
        await play(client, cases, case)
        if then is Then.CLOSE:  # a reset may take bytes along that were sent before it
            faults = [asked for asked in engine.asked if asked.target not in {GOOD, "/0"}]
            assert len(faults) == len(cases) - 1  # nothing of which a byte came was repeated


@pytest.mark.parametrize("name", ["length", "chunked"])
async def test_a_reply_that_stands_still_is_a_504(name: str, anyio_backend: Backend):
    raw = REPLIES[name]
    async with faulty(lambda cut: Answer(raw[:cut], Then.STALL), timeout_s=0.3) as (client, _):

        async def case(number: int) -> None:
            assert isinstance(await error_at(client, number), EngineTimeoutError), number

        cases = cases_of(raw, anyio_backend)
        for start in range(0, len(cases), AT_ONCE):
            await asyncio.gather(*map(case, cases[start : start + AT_ONCE]))
            assert client.in_use == [0]
            assert (await client.exchange(ask(GOOD))).body == b"ok"


async def test_a_length_that_is_too_large_is_a_502(anyio_backend: Backend):
    def answer_of(number: int) -> Answer:
        raw = length_reply().replace(
            b"%d\r\n\r\n" % len(BODY), b"%d\r\n\r\n" % (len(BODY) + number + 1)
        )
        return Answer(raw, Then.CLOSE)

    async with faulty(answer_of) as (client, _):

        async def case(number: int) -> None:
            assert isinstance(await error_at(client, number), EngineUnreachableError), number

        await play(client, cases_of(BODY, anyio_backend), case)


async def test_a_length_that_is_too_small_gives_as_much_and_no_connection(anyio_backend: Backend):
    def answer_of(number: int) -> Answer:
        return Answer(length_reply().replace(b"%d\r\n\r\n" % len(BODY), b"%d\r\n\r\n" % number))

    async with faulty(answer_of) as (client, engine):

        async def case(number: int) -> None:
            reply = await client.exchange(ask(f"/{number}"))
            assert reply.body == BODY[:number]

        await play(client, cases_of(BODY, anyio_backend), case)
        by_connection: dict[int, list[str]] = {}
        for asked in engine.asked:
            by_connection.setdefault(asked.connection, []).append(asked.target)
        # A fault is the last thing on its connection.
        assert all(target == GOOD for targets in by_connection.values() for target in targets[:-1])
