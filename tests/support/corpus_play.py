"""Plays a case of the corpus against a server, in one way of sending, and says what was wrong.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from tests.support.apps import pattern_of, receipt_of
from tests.support.corpus import Act, Case, End, Expected, Step, Way
from tests.support.raw import Address, AsyncRawConnection, open_raw, request_bytes
from tests.support.replies import Reply, ReplyError

DEADLINE_S: Final = 30.0  # of one play; what ends by a time-out of the server's is far below
_DRIP_PAUSE_S: Final = 0.1  # a client's own pace, shorter than any time-out of the server's
_PAUSE_S: Final = 0.5  # likewise
_RECV_BYTES: Final = 262144
_INTERIM: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_GIANT_BYTES: Final = 4096  # beyond, single bytes would only cost time
_FEW: Final = 12  # random pieces of a case
# Sessions of all four shards of four: what stands around a case is served by other shards too.
AROUND: Final = ("g", "b", "l", "a")


@dataclass(slots=True, kw_only=True)
class Played:
    """What came of one play.

    Attributes:
        replies: In order, as two servers must agree on them.
        wrong: What was not as expected, in words; empty if all was well.
    """

    replies: list[tuple[object, ...]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """A way of sending with its seed, which only `Way.SPLITS` and what is put around use."""

    way: Way
    seed: int = 0


def plays_of(case: Case, splits: int) -> list[Play]:
    """All plays of a case: each way that it does not skip, random splits that often."""
    seeds = {Way.SPLITS: range(splits)}
    return [
        Play(way=way, seed=seed)
        for way in Way
        if way not in case.skip
        for seed in seeds.get(way, range(1))
    ]


async def play_case(address: Address, case: Case, play: Play) -> Played:
    """Send a case in one way and read what comes, to the end that it must have.

    Returns:
        What came; every difference from what the case expects is in `wrong`.
    """
    played = Played()
    try:
        async with asyncio.timeout(DEADLINE_S), _open(address) as player:
            await player.run(case, play, played)
    except TimeoutError:
        played.wrong.append(f"hangs: nothing within {DEADLINE_S:g} s")
    except (ReplyError, ConnectionError) as error:
        played.wrong.append(f"{type(error).__name__}: {error}")
    return played


@asynccontextmanager
async def _open(address: Address) -> AsyncIterator[_Player]:
    async with open_raw(address) as connection:
        yield _Player(connection)


class _Player:
    """One connection that plays one case."""

    def __init__(self, connection: AsyncRawConnection) -> None:
        self._socket = connection.socket
        self._parser = connection.parser
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._interims = 0  # that were waited for
        self._replies: list[Reply] = []
        self._heads: list[bool] = []  # of each reply to come: whether it has no body

    async def run(self, case: Case, play: Play, played: Played) -> None:
        before = _good_before(case, play) if play.way is Way.BEHIND else []
        after = _good_after(case, play) if play.way is Way.BEFORE else []
        expected = [*(e for _, e in before), *case.replies, *(e for _, e in after)]
        self._heads = [each.head_only for each in expected]
        steps = [*case.steps]
        steps[0] = _joined(before, steps[0])
        if play.way is Way.BEFORE:
            steps.append(Step(data=b"".join(data for data, _ in after) or _trap_of(case)))
        for number, step in enumerate(steps):
            await self._send(step.data, play, f"{case.name} {number}")
            await self._act(step, len(before))
        while len(self._replies) < len(expected):
            await self._next_reply()
        played.replies += [
            (*reply.comparable(), reply.framing, len(reply.interim)) for reply in self._replies
        ]
        for number, (reply, wanted) in enumerate(zip(self._replies, expected, strict=True)):
            played.wrong += [f"reply {number}: {text}" for text in differences(reply, wanted)]
        await self._end(case.end, played)

    async def _send(self, data: bytes, play: Play, seed: str) -> None:
        for piece in pieces_of(data, play, seed):
            await self._loop.sock_sendall(self._socket, piece)
            if piece is not data:
                await asyncio.sleep(0)  # the server and other plays get their turn

    async def _act(self, step: Step, before_count: int) -> None:
        while step.act is not Act.NOTHING and len(self._replies) < before_count:
            await self._next_reply()
        if step.act is Act.AWAIT_INTERIM:
            self._interims += 1
            while self._received.count(_INTERIM) < self._interims:
                await self._receive()
        elif step.act is Act.AWAIT_REPLY:
            await self._next_reply()
        elif step.act is Act.HALF_CLOSE:
            self._socket.shutdown(socket.SHUT_WR)
        elif step.act is Act.PAUSE:
            await asyncio.sleep(_PAUSE_S)
        elif step.act is Act.DRIP:
            await self._drip([step.drip])
        elif step.act is Act.DRIP_BYTES:
            await self._drip([step.drip[at : at + 1] for at in range(len(step.drip))])

    async def _drip(self, pieces: Sequence[bytes]) -> None:
        reading = asyncio.create_task(self._receive())
        for piece in itertools.cycle(pieces):
            await asyncio.wait([reading], timeout=_DRIP_PAUSE_S)
            if reading.done():
                break
            await self._loop.sock_sendall(self._socket, piece)
        await reading

    async def _next_reply(self) -> None:
        head_only = self._heads[len(self._replies)]
        while (reply := self._parser.next_reply(head_only=head_only)) is None:
            await self._receive()
        self._replies.append(reply)

    async def _receive(self) -> None:
        if self._parser.ended:
            raise ReplyError("the connection ended, and more was to come")
        data = await self._loop.sock_recv(self._socket, _RECV_BYTES)
        self._received += data
        self._parser.feed(data)

    async def _end(self, end: End, played: Played) -> None:
        said = ["close" in (reply.header("connection") or "") for reply in self._replies]
        if any(said[:-1]):
            played.wrong.append("a reply that is not the last one says close")
        if said[-1:] == [end is not End.CLOSE]:
            played.wrong.append(f"the last reply says close={said[-1]}")
        if end in (End.CLOSE, End.DROP):
            while not self._parser.ended:
                await self._receive()
        elif self._parser.ended:
            played.wrong.append("the connection ended")
        elif end is End.KEEP:
            await self._prove_alive(played)
        more = self._parser.leftover
        if more and not (more == _INTERIM and self._interims):  # a 100, and no reply after it
            played.wrong.append(f"more came: {more[:300]!r}")

    async def _prove_alive(self, played: Played) -> None:
        data, expected = _good("alive", "g", 7)
        await self._loop.sock_sendall(self._socket, data)
        self._heads.append(False)
        await self._next_reply()
        played.wrong += [f"alive: {text}" for text in differences(self._replies[-1], expected)]


def differences(reply: Reply, expected: Expected) -> list[str]:
    """What of a reply is not as expected, in words."""
    found: list[tuple[str, object, object]] = [
        ("status", reply.status, expected.status),
        ("interim", len(reply.interim), int(expected.interim)),
        ("without framing", reply.framing == "eof", expected.is_unframed),
        ("a sprung trap", reply.header("x-id") == "trap", False),
    ]
    found += [(f"number of {name}", len(reply.values(name)), 1) for name in ("date", "server")]
    if expected.id is not None:
        found.append(("x-id", reply.header("x-id"), expected.id))
    if expected.got is not None:
        found.append(("x-got", reply.header("x-got"), receipt_of(expected.got)))
    if expected.body is not None:
        found.append(("body", reply.body, expected.body))
    if expected.code is not None:
        code = reply.body.partition(b'"code":"')[2].partition(b'"')[0].decode()
        found.append(("code", code, expected.code if not expected.head_only else ""))
        found.append(("content-type", reply.header("content-type"), "application/json"))
        found.append(("x-should-retry", reply.header("x-should-retry"), "false"))
    found += [(name, reply.header(name), value) for name, value in expected.headers]
    return [f"{what} is {is_!r}, not {must!r}" for what, is_, must in found if is_ != must]


def pieces_of(data: bytes, play: Play, seed: str) -> Sequence[bytes]:
    """The writes that a step's bytes are sent in; one, the same object, unless they are split."""
    if play.way is Way.BYTES and len(data) <= _GIANT_BYTES:
        return [data[at : at + 1] for at in range(len(data))]
    if play.way is Way.BYTES:  # edges, and pieces that end nowhere in particular between them
        step = 1021 if len(data) < 1 << 18 else 16381
        return list(_cut(data, [*range(3, len(data) - 3, step), *range(len(data) - 3, len(data))]))
    if play.way is Way.SPLITS and len(data) > 1:
        chance = random.Random(f"{seed} {play.seed}")
        return list(_cut(data, [chance.randrange(1, len(data)) for _ in range(_FEW)]))
    return [data] if data else []


def _cut(data: bytes, places: Iterable[int]) -> Iterable[bytes]:
    cuts = sorted({0, *places, len(data)})
    return (data[a:b] for a, b in itertools.pairwise(cuts))


def _good(id_: str, session: str, out: int, body: bytes = b"") -> tuple[bytes, Expected]:
    """A good request and its reply; with a body it is chunked."""
    target = f"/sessions/{session}/echo?id={id_}&out={out}"
    data = request_bytes("POST" if body else "GET", target, body=body, chunk_bytes=3 * bool(body))
    return data, Expected(status=200, id=id_, got=body, body=pattern_of(id_, out))


def _good_before(case: Case, play: Play) -> list[tuple[bytes, Expected]]:
    chance = random.Random(f"{case.name} {play.seed}")
    first, second = chance.sample(AROUND, 2)
    return [_good("first", first, 5), _good("second", second, 3, b"chunks before")]


def _good_after(case: Case, play: Play) -> list[tuple[bytes, Expected]]:
    """What must be served after the case; nothing if the connection must end."""
    if case.end is not End.KEEP:
        return []
    chance = random.Random(f"{case.name} {play.seed}")
    return [_good("after", chance.choice(AROUND), 9), _good("last", "b", 1, b"chunks after")]


def _trap_of(case: Case) -> bytes:
    """A request that must never be run."""
    return request_bytes("GET", f"/sessions/g/trap?{case.name}")


def _joined(before: Sequence[tuple[bytes, Expected]], step: Step) -> Step:
    data = b"".join(data for data, _ in before) + step.data
    return Step(data=data, act=step.act, drip=step.drip)
