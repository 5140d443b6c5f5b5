"""Exchanges in every state a death can find them in, each with a client that knows its state.

A `Flight` is one client with one exchange: `take_off` brings it into the state, `land` reads what
comes until the connection ends, `go_on` finishes an exchange that nothing happened to and checks
every byte. A `Fleet` is many of them over all shards of a group that runs `flight_app`; it knows
from the shards themselves when all have got where they shall be.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.support.apps import pattern_of, receipt_of
from tests.support.flight_app import FLOOD_BYTES, REPLY_BYTES, STALL_BYTES
from tests.support.ids import ids_of_shard
from tests.support.raw import Address, AsyncRawConnection, open_raw, request_bytes
from tests.support.replies import ConnectionEndedError, Reply, ReplyCutError

TIMEOUT_S: Final = 30.0
NOWHERE: Final = -1
_UPLOAD_BYTES: Final = 300_000
_SENDING_BYTES: Final = 8 << 20
_SEND_STEP_BYTES: Final = 500
_SEND_PAUSE_S: Final = 0.01


class Kind(enum.Enum):
    """What the exchange is doing when the death comes."""

    HALF_HEAD = enum.auto()
    WAITING = enum.auto()
    UPLOADING = enum.auto()  # half of the body is sent
    SENDING = enum.auto()  # the body is being sent, before and after the death
    DISCARDING = enum.auto()  # the reply came early, the body is still on its way
    STALLED = enum.auto()  # half of a framed reply is read
    DRIPPING = enum.auto()  # a chunked reply is being written and read
    FLOODED = enum.auto()  # the client does not read, the shard cannot write on
    DONE = enum.auto()  # the reply is whole, the application has not returned
    PIPELINED = enum.auto()  # waiting, with the next request or half of its head behind it
    PARKED = enum.auto()
    EXITING = enum.auto()  # the exchange that ends its own shard
    EATING = enum.auto()  # the exchange for which its shard takes memory until it is killed


_ROUTES: Final[Mapping[Kind, str]] = {
    Kind.WAITING: "hold",
    Kind.UPLOADING: "hold",
    Kind.SENDING: "hold",
    Kind.PIPELINED: "hold",
    Kind.STALLED: "stall",
    Kind.DRIPPING: "drip",
    Kind.FLOODED: "flood",
    Kind.DONE: "done",
    Kind.EXITING: "exit",
    Kind.EATING: "eat",
}
MIDDLE: Final = frozenset({Kind.STALLED, Kind.DRIPPING, Kind.FLOODED})
_DEADLY: Final = frozenset({Kind.EXITING, Kind.EATING})
UNANSWERED: Final = _DEADLY | {Kind.WAITING, Kind.UPLOADING, Kind.SENDING, Kind.PIPELINED}
IDLE: Final = frozenset({Kind.DONE, Kind.PARKED})
_KINDS: Final = [kind for kind in Kind if kind not in _DEADLY]
_BEGUN: Final = MIDDLE | UNANSWERED - _DEADLY


class End(enum.Enum):
    """How a connection ended."""

    CLOSED = "closed"
    CUT = "cut"  # in the middle of a reply
    RESET = "reset"
    HUNG = "hung"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """What a client saw from the death on."""

    replies: list[Reply]
    end: End


class Flight:
    """One client and its exchange; see the module docstring.

    Attributes:
        session: The session that it names, or "" for none.
        shard: Who has it; NOWHERE until that is known.
        seed: Of its reply.
    """

    def __init__(
        self, kind: Kind, connection: AsyncRawConnection, *, session: str, shard: int, seed: str
    ) -> None:
        self.kind = kind
        self.session = session
        self.shard = shard
        self.seed = seed
        self._connection = connection
        self._body = b""
        self._rest = b""  # what the client has not sent yet
        self._reader: asyncio.Task[Reply] | None = None
        self._sender: asyncio.Task[None] | None = None
        self._must_stop = False

    def __repr__(self) -> str:
        return f"{self.kind.name} {self.seed} of shard {self.shard}"

    def target(self, route: str, seed: str, more: str = "") -> str:
        """A target of the same session."""
        prefix = f"/sessions/{self.session}" if self.session else "/plain"
        return f"{prefix}/{route}?id={seed}{more}"

    async def take_off(self) -> None:
        """Bring the exchange into its state, as far as the client sees it."""
        target = self.target(_ROUTES.get(self.kind, "echo"), self.seed)
        match self.kind:
            case Kind.HALF_HEAD:
                data = self._next_request()
                await self._send_part(data, data.index(b"\r\n\r\n") - 5)
            case Kind.WAITING | Kind.EXITING | Kind.EATING:
                await self._connection.send(request_bytes("POST", target))
            case Kind.UPLOADING:
                await self._post(target, _UPLOAD_BYTES, _UPLOAD_BYTES // 2)
            case Kind.SENDING:
                await self._post(target, _SENDING_BYTES, 0)
                self._sender = asyncio.create_task(self._send_on())
            case Kind.DISCARDING:
                target = self.target("echo", self.seed, "&early=1")
                await self._post(target, _UPLOAD_BYTES, 50_000)
                assert (await self._connection.read_reply()).status == 413
            case Kind.STALLED | Kind.DRIPPING:
                await self._connection.send(request_bytes("GET", target))
                self._reader = asyncio.create_task(self._connection.read_reply())
            case Kind.FLOODED:
                await self._connection.send(request_bytes("GET", target))
                await self._connection._read()
            case Kind.PIPELINED:
                following = self._next_request()
                data = request_bytes("POST", target) + following
                whole = int(self.seed[1:]) % 2
                await self._send_part(data, len(data) - (0 if whole else len(following) // 2))
            case Kind.DONE:
                reply = await self._connection.ask(request_bytes("POST", target))
                assert reply.body == pattern_of(self.seed, REPLY_BYTES)
            case Kind.PARKED:
                await self._ask_next()

    async def land(self) -> Landing:
        """Read until the connection ends."""
        replies = []
        end = End.CLOSED
        try:
            if self._reader is not None:
                replies.append(await self._reader)
            while True:
                replies.append(await self._connection.read_reply())
                await self.stop_sending()  # as a client does that was told to close
        except ReplyCutError:
            end = End.CUT
        except ConnectionEndedError:
            pass
        except OSError as error:  # TimeoutError is one
            end = End.HUNG if isinstance(error, TimeoutError) else End.RESET
        await self.stop_sending()
        return Landing(replies=replies, end=end)

    async def go_on(self) -> None:
        """Finish an exchange that was released, and ask once more.

        Raises:
            AssertionError: A byte is wrong or missing.
        """
        if self.kind not in IDLE:
            await self.stop_sending()
            await self._connection.send(self._rest)
        if self.kind is Kind.HALF_HEAD:
            self._check_next(await self._connection.read_reply())
        elif self.kind in UNANSWERED:
            reply = await self._connection.read_reply()
            assert reply.status == 200, (self, reply.body)
            assert reply.body == pattern_of(self.seed, REPLY_BYTES), self
            assert reply.header("x-got") == receipt_of(self._body), self
            if self.kind is Kind.PIPELINED:
                self._check_next(await self._connection.read_reply())
        elif self.kind in MIDDLE:
            reply = await (self._reader or self._connection.read_reply())
            assert self.has_right_middle(reply), self
        await self._ask_next()

    def has_right_middle(self, reply: Reply) -> bool:
        """Whether a reply that was in its middle came whole and right."""
        length = {Kind.STALLED: STALL_BYTES, Kind.FLOODED: FLOOD_BYTES}
        expected = length.get(self.kind, reply.body_bytes)
        return reply.status == 200 and reply.body == pattern_of(self.seed, expected)

    async def ask_other(self, session: str) -> Reply:
        """Ask another session on the same connection."""
        target = f"/sessions/{session}/echo?id=o&out=9"
        return await self._connection.ask(request_bytes("GET", target))

    async def finish_head(self) -> None:
        """Send the rest of a half head."""
        await self._connection.send(self._rest)

    async def stop_sending(self) -> None:
        """End the sending in the background; what is not sent stays for later."""
        if self._sender is not None:
            self._must_stop = True
            await self._sender

    async def stop(self) -> None:
        """End all that happens in the background."""
        for task in (self._sender, self._reader):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])

    async def _post(self, target: str, size_bytes: int, sent_bytes: int) -> None:
        self._body = pattern_of(f"body {self.seed}", size_bytes)
        data = request_bytes("POST", target, body=self._body)
        await self._send_part(data, len(data) - size_bytes + sent_bytes)

    async def _send_part(self, data: bytes, count: int) -> None:
        self._rest = data[count:]
        await self._connection.send(data[:count])

    async def _send_on(self) -> None:
        """Go on sending slowly; an end of the connection is seen by who reads."""
        with contextlib.suppress(OSError):
            while self._rest and not self._must_stop:
                piece, self._rest = self._rest[:_SEND_STEP_BYTES], self._rest[_SEND_STEP_BYTES:]
                await self._connection.send(piece)
                await asyncio.sleep(_SEND_PAUSE_S)

    def _next_request(self) -> bytes:
        target = self.target("echo", f"{self.seed}.n", f"&out={REPLY_BYTES}")
        return request_bytes("POST", target, body=b"next")

    def _check_next(self, reply: Reply) -> None:
        assert reply.status == 200, (self, reply.body)
        assert reply.body == pattern_of(f"{self.seed}.n", REPLY_BYTES), self

    async def _ask_next(self) -> None:
        self._check_next(await self._connection.ask(self._next_request()))


class Fleet:
    """Many flights over all shards of one group; made by `open_fleet`."""

    def __init__(
        self, address: Address, shards: int, stack: contextlib.AsyncExitStack, count: int
    ) -> None:
        self.flights: list[Flight] = []
        self._address = address
        self._shards = shards
        self._stack = stack
        self._count = count

    async def take_off(self) -> None:
        """Every kind on every shard alike, a quarter without a session; waits until all are up."""
        kinds = len(_KINDS)
        sessions = [ids_of_shard(shard, self._shards, 8) for shard in range(self._shards)]
        for number in range(self._count):
            kind = _KINDS[number % kinds]
            shard = (number // kinds) % self._shards
            is_plain = kind in _BEGUN and number // (kinds * self._shards) % 4 == 3
            session = "" if is_plain else sessions[shard][number % 8]
            await self._add(kind, session, NOWHERE if is_plain else shard)
        await asyncio.gather(*(flight.take_off() for flight in self.flights))
        are_up = False
        while not are_up:
            are_up = await self._are_up()

    async def add_deadly(self, kind: Kind, shard: int) -> None:
        """One more flight, of which its shard dies."""
        await self._add(kind, ids_of_shard(shard, self._shards)[0], shard)
        await self.flights[-1].take_off()

    async def release(self, shards: Sequence[int]) -> None:
        """Let the waiting exchanges of these shards go on."""
        for shard in shards:
            await self._ask(shard, "release")

    async def land(self) -> list[Landing]:
        """What each client sees until its connection ends."""
        return await asyncio.gather(*(flight.land() for flight in self.flights))

    async def stop(self) -> None:
        """End what clients do beside reading."""
        for flight in self.flights:
            await flight.stop()

    async def _add(self, kind: Kind, session: str, shard: int) -> None:
        opened = open_raw(self._address, timeout_s=TIMEOUT_S)
        connection = await self._stack.enter_async_context(opened)
        seed = f"f{len(self.flights)}"
        self.flights.append(Flight(kind, connection, session=session, shard=shard, seed=seed))

    async def _are_up(self) -> bool:
        """Whether the shards have all exchanges that a shard must have; notes which has which."""
        owners: dict[str, int] = {}
        for shard in range(self._shards):
            owners |= dict.fromkeys(json.loads((await self._ask(shard, "begun")).body), shard)
        for flight in self.flights:
            if flight.shard == NOWHERE:
                flight.shard = owners.get(flight.seed, NOWHERE)
        return all(flight.seed in owners for flight in self.flights if flight.kind in _BEGUN)

    async def _ask(self, shard: int, route: str) -> Reply:
        (session,) = ids_of_shard(shard, self._shards)
        async with open_raw(self._address, timeout_s=TIMEOUT_S) as connection:
            reply = await connection.ask(request_bytes("GET", f"/sessions/{session}/{route}"))
        assert reply.status == 200, reply.body
        return reply


@contextlib.asynccontextmanager
async def open_fleet(address: Address, *, shards: int, count: int) -> AsyncIterator[Fleet]:
    """A fleet in the air: every exchange is in its state.

    Args:
        address: Of a group that runs `flight_app`.
        shards: How many it has.
        count: Exchanges, spread over kinds and shards.
    """
    async with contextlib.AsyncExitStack() as stack:
        fleet = Fleet(address, shards, stack, count)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await fleet.take_off()
            yield fleet
        finally:
            await fleet.stop()
