"""Every fault at every byte of an engine's reply with a replay blob, through the whole application.

The reply is that of a session's second turn, which is there already: the turn is tried again, its
blob begins like the stored ones and goes on differently. After each fault the session must read as
before byte for byte, hold as many bytes as before, and take the next turn.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from sessions.tokens.prompts import PromptBuilder
from tests.support.loops import BOTH_LOOPS, Backend
from tests.support.raw_engine import Answer, Then
from tests.support.raw_replies import chunked_reply, close_reply, length_reply
from tests.support.rollouts import ask, error_of
from tests.support.trials import FaultOf, trials

UNREACHABLE, UNUSABLE = "engine_unreachable", "engine_reply_unusable"


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


def cases_of(size: int, backend: Backend, step: int = 1) -> range:
    """Every `step`-th offset on the loop of production, fewer on the other one."""
    return range(0, size, step if backend[1]["use_uvloop"] else step * 11)


def cut(then: Then, reply_of: Callable[[bytes], bytes] = length_reply) -> FaultOf:
    """Sends as many bytes of a reply as the fault's number says."""
    return lambda number, body: Answer(reply_of(body)[:number], then)


@pytest.mark.timeout(240)  # 2,000 turns and more, while others use the cores
@pytest.mark.parametrize("then", [Then.CLOSE, Then.RESET])
async def test_a_reply_that_breaks_off_at_any_byte_is_a_502(
    then: Then, prompts: PromptBuilder, anyio_backend: Backend
):
    async with trials(prompts, cut(then)) as begin:
        trial = await begin()
        size = len(length_reply(trial.body))
        assert size > 1900
        for number in cases_of(size, anyio_backend):
            await trial.fails(number, 502, UNREACHABLE)


async def test_a_spool_keeps_nothing_of_a_reply_that_breaks_off(
    prompts: PromptBuilder, anyio_backend: Backend, tmp_path: Path
):
    async with trials(prompts, cut(Then.CLOSE), spool_dir=str(tmp_path)) as begin:
        trial = await begin()
        for number in cases_of(len(length_reply(trial.body)), anyio_backend, 23):
            await trial.fails(number, 502, UNREACHABLE)


@pytest.mark.parametrize(
    "reply_of",
    [
        chunked_reply,
        lambda body: length_reply(gzip.compress(body), b"content-encoding: gzip"),
        lambda body: chunked_reply(zstandard.compress(body), b"content-encoding: zstd"),
        # Here only the stream itself says that it is not whole.
        lambda body: close_reply(zstandard.compress(body), b"content-encoding: zstd"),
    ],
    ids=["chunked", "gzip", "zstd in chunks", "zstd to the end"],
)
async def test_a_framed_or_coded_reply_that_breaks_off_is_a_502(
    reply_of: Callable[[bytes], bytes], prompts: PromptBuilder, anyio_backend: Backend
):
    async with trials(prompts, cut(Then.CLOSE, reply_of)) as begin:
        trial = await begin()
        for number in cases_of(len(reply_of(trial.body)), anyio_backend, 13):
            await trial.fails(number, 502, UNREACHABLE, UNUSABLE)


async def test_a_length_that_is_too_short_is_a_502(prompts: PromptBuilder, anyio_backend: Backend):
    def short(number: int, body: bytes) -> Answer:
        told = b"content-length: %d" % len(body)
        return Answer(length_reply(body).replace(told, b"content-length: %d" % number))

    async with trials(prompts, short) as begin:
        trial = await begin()
        for number in cases_of(len(trial.body), anyio_backend, 13):
            await trial.fails(number, 502, UNUSABLE)


async def test_a_length_that_is_too_long_is_a_502(prompts: PromptBuilder, anyio_backend: Backend):
    def long(number: int, body: bytes) -> Answer:
        told = b"content-length: %d" % len(body)
        longer = b"content-length: %d" % (len(body) + 1 + number)
        return Answer(length_reply(body).replace(told, longer), Then.CLOSE)

    async with trials(prompts, long) as begin:
        trial = await begin()
        for number in cases_of(1000, anyio_backend, 50):
            await trial.fails(number, 502, UNREACHABLE)


# Of each the engine says that it is coded so.
CODINGS = {
    "unknown": (b"x-unknown", lambda body: body),
    "not there": (b"gzip", lambda body: body),
    "another one": (b"zstd", gzip.compress),
    "twice, once": (b"gzip, gzip", gzip.compress),
    "without a beginning": (b"gzip", lambda body: gzip.compress(body)[10:]),
    "without an end": (b"zstd", lambda body: zstandard.compress(body)[:-3]),
}


@pytest.mark.parametrize("name", CODINGS)
async def test_a_coding_that_is_not_as_it_says_is_a_502(
    name: str, prompts: PromptBuilder, anyio_backend: Backend
):
    coding, pack = CODINGS[name]

    def coded(_: int, body: bytes) -> Answer:
        return Answer(length_reply(pack(body), b"content-encoding: " + coding))

    async with trials(prompts, coded) as begin:
        trial = await begin()
        for number in cases_of(2, anyio_backend):
            await trial.fails(number, 502, UNUSABLE)


# Plain zstd has no check sum, and a name within it may change unseen.
CHECKED_ZSTD = zstandard.ZstdCompressor(write_checksum=True).compress


@pytest.mark.parametrize("pack", [None, gzip.compress, CHECKED_ZSTD], ids=["plain", "gzip", "zstd"])
async def test_a_changed_byte_is_a_502_or_a_turn_and_the_session_can_be_read(
    pack: Callable[[bytes], bytes] | None, prompts: PromptBuilder, anyio_backend: Backend
):
    coding = b"content-encoding: " + (b"gzip" if pack is gzip.compress else b"zstd")

    def flipped(number: int, body: bytes) -> Answer:
        raw = length_reply(pack(body), coding) if pack else length_reply(body)
        changed = bytearray(raw)
        changed[number % len(raw)] ^= 1 << number % 7
        # By another name it would be no replay.
        is_name = b"routed_experts" in raw and b"routed_experts" not in changed
        return Answer(bytes(raw if is_name else changed), Then.CLOSE)

    async with trials(prompts, flipped) as begin:
        trial = await begin()
        statuses = set()
        for number in cases_of(2000, anyio_backend, 7):
            response = await trial.turn(fault=number, stream=bool(number % 2))
            statuses.add(response.status_code)
            assert trial.tells_nothing(response)
            if "x-turn-recorded" in response.headers:
                await trial.is_unchanged()
            else:
                assert response.status_code == 200
                read = (await ask(trial.rollouts.asgi, "GET", trial.path)).json()
                assert len(read["records"]) == 2
            await trial.go_on()
        assert 502 in statuses


async def test_a_reply_that_stands_still_is_a_504(prompts: PromptBuilder, anyio_backend: Backend):
    async with trials(prompts, cut(Then.STALL), engine_timeout_s="2") as begin:
        first = await begin()
        cases = cases_of(len(length_reply(first.body)), anyio_backend, 40)
        made = {number: await begin() for number in cases}
        # Their bytes are counted together, so all fail before one goes on.
        kept = first.rollouts.kept_bytes
        replies = await asyncio.gather(
            *(trial.turn(fault=n, stream=bool(n % 2)) for n, trial in made.items())
        )
        for response in replies:
            assert error_of(response, 504)["code"] == "engine_timeout"
            assert response.headers["x-turn-recorded"] == "false"
            assert first.tells_nothing(response)
        assert first.rollouts.kept_bytes == kept
        for trial in made.values():
            assert len((await ask(trial.rollouts.asgi, "GET", trial.path)).json()["records"]) == 2
            await trial.go_on()


async def test_a_stream_that_has_begun_tells_the_fault_as_an_event(
    prompts: PromptBuilder, anyio_backend: Backend
):
    async with trials(
        prompts, cut(Then.STALL), engine_timeout_s="1", sse_keepalive_s="0.1"
    ) as begin:
        trial = await begin()
        cases = cases_of(len(length_reply(trial.body)), anyio_backend, 300)
        replies = await asyncio.gather(*(trial.turn(fault=n, stream=True) for n in cases))
        for response in replies:
            assert response.status_code == 200
            *comments, event, told, end = response.text.split("\n\n")
            assert {comment[0] for comment in comments} == {":"}
            assert json.loads(event.removeprefix("data: "))["error"]["code"] == "engine_timeout"
            assert (told[:1], end) == (":", "")
            assert "[DONE]" not in response.text
            assert trial.tells_nothing(response)
        await trial.is_unchanged()
        await trial.go_on()
