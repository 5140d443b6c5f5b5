"""The corpus player: it sends what it shall, and sees all that a server can do wrong."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvicorn

from tests.support import corpus_play
from tests.support.apps import cases
from tests.support.corpus import Act, Case, End, Expected, Step, Way, read_corpus
from tests.support.corpus_play import Play, pieces_of, play_case, plays_of
from tests.support.raw import Address
from tests.support.waiting import wait_until_async

HEAD = b"HTTP/1.1 200 OK\r\ndate: x\r\nserver: y\r\nx-id: a\r\n"
GOOD = HEAD + b"content-length: 2\r\n\r\nok"
CLOSING = HEAD + b"content-length: 2\r\nconnection: close\r\n\r\nok"
TRAP = GOOD.replace(b"x-id: a", b"x-id: trap")
WHOLE = Play(way=Way.WHOLE)
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def case_of(
    end: End, *, status: int = 200, act: Act = Act.NOTHING, expected: bool = True, drip: bytes = b""
) -> Case:
    """A case that sends two bytes and wants at most one reply."""
    return Case(
        name="t.t",
        what="",
        rule="",
        steps=(Step(data=b"hi", act=act, drip=drip),),
        replies=(Expected(status=status, id="a", body=b"ok"),) if expected else (),
        end=end,
    )


@contextlib.asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[Address]:
    """A server that does with its one connection what a function does."""

    ended = asyncio.Event()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await serve(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield host, port
        async with asyncio.timeout(10):
            await ended.wait()
    finally:
        server.close()


def answering(data: bytes, *, then_wait: bool) -> Serve:
    """Answers two bytes with these, then ends the connection or waits for the client to."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(2)
        writer.write(data)
        if then_wait:
            await reader.read()

    return serve


@pytest.mark.parametrize(
    ("case", "data", "then_wait", "words"),
    [
        (case_of(End.CLOSE), CLOSING, False, []),
        (case_of(End.DROP), GOOD, False, []),
        (case_of(End.OPEN), GOOD, True, []),
        (case_of(End.DROP, expected=False), b"", False, []),
        (case_of(End.CLOSE), GOOD, False, ["close=False"]),
        (case_of(End.DROP), CLOSING, False, ["close=True"]),
        (case_of(End.KEEP), CLOSING, False, ["close=True", "ended"]),
        (case_of(End.KEEP), GOOD, False, ["ended"]),
        (case_of(End.KEEP), GOOD + GOOD, True, ["alive: x-id"]),
        (case_of(End.CLOSE, status=400), CLOSING, False, ["status is 200, not 400"]),
        (case_of(End.CLOSE), CLOSING.replace(b"ok", b"no"), False, ["body is b'no'"]),
        (case_of(End.CLOSE), CLOSING.replace(b"x-id: a", b"x-id: b"), False, ["x-id is 'b'"]),
        (case_of(End.CLOSE), CLOSING.replace(b"date: x\r\n", b""), False, ["number of date is 0"]),
        (case_of(End.CLOSE), CLOSING + TRAP, False, ["more came: b'HTTP/1.1 200"]),
        (case_of(End.OPEN), TRAP, True, ["sprung trap"]),
        (case_of(End.DROP, expected=False), GOOD, False, ["more came"]),
        (case_of(End.CLOSE), b"", False, ["ended before a reply"]),
        (case_of(End.CLOSE), CLOSING[:-1], False, ["cut after"]),
        (case_of(End.CLOSE), b"nonsense\r\n\r\n", False, ["not a status line"]),
        (case_of(End.CLOSE), b"HTTP/1.1 100 Continue\r\n\r\n" + CLOSING, False, ["interim is 1"]),
    ],
)
async def test_sees_what_a_server_does(case: Case, data: bytes, then_wait: bool, words: list[str]):  # noqa: FBT001 - a parameter of the test
    async with serving(answering(data, then_wait=then_wait)) as address:
        played = await play_case(address, case, WHOLE)
    if not words:
        assert played.wrong == []
        assert len(played.replies) == len(case.replies)
    for word in words:
        assert word in " ".join(played.wrong)


@pytest.mark.parametrize("case", [case_of(End.CLOSE), case_of(End.DROP, expected=False)])
async def test_sees_a_server_that_hangs(case: Case, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(corpus_play, "DEADLINE_S", 0.05)
    async with serving(answering(b"", then_wait=True)) as address:
        assert "hangs" in (await play_case(address, case, WHOLE)).wrong[0]


async def test_sees_a_reset():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        made = writer.get_extra_info("socket")
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async with serving(serve) as address:
        assert "Reset" in (await play_case(address, case_of(End.CLOSE), WHOLE)).wrong[0]


@pytest.mark.parametrize(
    ("act", "drip", "seen"),
    [(Act.DRIP, b"xyz", b"hixyz"), (Act.DRIP_BYTES, b"xyz", b"hix"), (Act.HALF_CLOSE, b"", b"hi")],
)
async def test_acts_after_the_bytes(
    act: Act, drip: bytes, seen: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(corpus_play, "_DRIP_PAUSE_S", 0.01)
    got = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readexactly(2))
        got.append(await reader.read(100))
        writer.write(CLOSING)

    async with serving(serve) as address:
        assert (await play_case(address, case_of(End.CLOSE, act=act, drip=drip), WHOLE)).wrong == []
    assert b"".join(got).startswith(seen)


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("size_bytes", [1, 2, 300, 5000, 70_000])
def test_pieces_are_all_that_is_sent(way: Way, size_bytes: int):
    data = bytes(range(256)) * (size_bytes // 256 + 1)
    data = data[:size_bytes]
    pieces = pieces_of(data, Play(way=way), "seed")
    assert b"".join(pieces) == data
    assert all(pieces)
    if way is Way.BYTES and size_bytes <= 4096:
        assert len(pieces) == size_bytes
    if way in (Way.BYTES, Way.SPLITS) and size_bytes > 100:
        assert len(pieces) > 5
    if way in (Way.WHOLE, Way.BEHIND, Way.BEFORE):
        assert len(pieces) == 1


def test_random_pieces_follow_their_seed():
    data = bytes(1000)
    lengths = [
        [len(piece) for piece in pieces_of(data, Play(way=Way.SPLITS, seed=seed), "case")]
        for seed in (0, 0, 1)
    ]
    assert lengths[0] == lengths[1] != lengths[2]


def test_a_case_is_played_in_all_ways_but_those_it_skips():
    case = case_of(End.KEEP)
    assert len(plays_of(case, 3)) == 4 + 3
    assert {play.way for play in plays_of(case, 1)} == set(Way)


@pytest.mark.parametrize(
    ("name", "way", "words"),
    [
        ("upgrades.h2c_length", Way.WHOLE, "x-got is"),
        ("hosts.missing", Way.WHOLE, "status is 200, not 400"),
        ("expectations.http10", Way.WHOLE, "interim is 1"),
        ("giant_heads.one_byte_more", Way.WHOLE, "status is 200, not 431"),
        ("methods.get", Way.WHOLE, ""),
        ("methods.post_chunked", Way.BYTES, ""),
    ],
)
async def test_a_stock_server_shows_what_the_corpus_finds(name: str, way: Way, words: str):
    """It has no gate, so the cases that need one must fail there, and the others pass."""
    (case,) = [
        each for each in read_corpus(Path(__file__).parents[1] / "corpus") if each.name == name
    ]
    config = uvicorn.Config(
        cases(), port=0, http="httptools", ws="none", log_config=None, timeout_keep_alive=1
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    try:
        await wait_until_async(lambda: server.started, "the server accepts")
        address = server.servers[0].sockets[0].getsockname()
        wrong = " ".join((await play_case(address, case, Play(way=way))).wrong)
    finally:
        server.should_exit = True
        await task
    assert words in wrong
    assert bool(words) == bool(wrong)
