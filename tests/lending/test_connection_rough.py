"""A front's connection on a network that splits, delays, stops and drops (rules 1, 6, 8, 9, 17)."""

from __future__ import annotations

import enum
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.lending.connection import Connection
from sessions.lending.place import Place
from sessions.lending.probes import ProbeReply
from sessions.lending.slots import SlotState, SlotTable
from sessions.settings import read_settings
from sessions.wire.head import Head
from sessions.wire.repeated import RepeatedHeads
from tests.support.fronts import Clock, FakeDispatcher
from tests.support.raw import request_bytes
from tests.support.rough_transport import RoughTransport


class Wants(enum.Enum):
    """Who answers a request."""

    FRONT = enum.auto()
    SHARD = enum.auto()


class Move(enum.Enum):
    """What the world does next."""

    ARRIVE = enum.auto()
    STALL = enum.auto()
    FLOW = enum.auto()
    GIVE_BACK = enum.auto()


class WatchfulDispatcher(FakeDispatcher):
    """Knows that a number is not free before its release is on its way (rule 9)."""

    def __init__(self, slots: SlotTable) -> None:
        super().__init__()
        self._slots = slots

    def release(self, slot: int, holders: list[int]) -> None:
        """See `FakeDispatcher.release`."""
        assert not self._slots.has_free, "the number is free before its release"
        super().release(slot, holders)


class World:
    """One connection, the front around it, and shards that answer when they are told to."""

    def __init__(self) -> None:
        self.settings = read_settings({})
        self.slots = SlotTable(1)
        self.connections: set[Connection] = set()
        self.heads = RepeatedHeads()
        self.dispatcher = WatchfulDispatcher(self.slots)
        self.is_closing = False
        self.now = Clock()
        self.slot = self.slots.take()
        self.connection = Connection(self, self.slot)
        self.network = RoughTransport(self.connection)
        self.connection.connection_made(self.network)
        self._answered = 0

    def answer_probe(self, head: Head) -> ProbeReply | None:
        """A probe's body is its path, so that answers can be told apart."""
        is_probe = head.path.startswith(b"/probe")
        return ProbeReply(status=200, body=head.path) if is_probe else None

    def choose(self, head: Head) -> Place:
        """Shards by turns."""
        assert self.network.get_write_buffer_size() == 0, "lent before the last reply has left"
        return Place(shard=head.path[-1] % 3)

    def move(self, move: Move, count: int) -> bool:
        """Do it; whether anything happened."""
        match move:
            case Move.ARRIVE:
                return self.network.arrive(count) > 0
            case Move.STALL:
                if self.slot.state is SlotState.HEAD:
                    self.network.stall()
            case Move.FLOW:
                waited = self.network.get_write_buffer_size() > 0
                self.network.flow()
                return waited
            case Move.GIVE_BACK:
                return self._give_back()
        return False

    def _give_back(self) -> bool:
        """The shard writes its reply and gives back what follows the head."""
        if self.slot.state is not SlotState.LENT:
            return False
        assert not self.network.takes_input, "read while a shard has it"
        loan = self.dispatcher.loans[self._answered]
        assert len(self.dispatcher.loans) == self._answered + 1, "lent twice at a time"
        self._answered += 1
        self.network.flow()
        self.network.write(b"shard " + loan.head.path)
        self.connection.take_back(loan.shard, loan.payload[loan.head.size :], kept=True)
        return True

    def settle(self) -> None:
        """Let everything happen that still can."""
        while any(self.move(move, 1 << 20) for move in Move if move is not Move.STALL):
            pass

    @property
    def answers(self) -> list[bytes]:
        """The paths of the requests whose answers have left, in order."""
        return [
            written.rpartition(b"\r\n\r\n")[2].removeprefix(b"shard ")
            for written in self.network.written
        ]


REQUESTS = st.lists(st.sampled_from(Wants), min_size=1, max_size=8)
MOVES = st.lists(st.tuples(st.sampled_from(Move), st.integers(1, 90)), max_size=60)


def paths_of(wanted: list[Wants]) -> list[bytes]:
    return [
        f"/{'probe' if want is Wants.FRONT else 'shard'}{number}".encode()
        for number, want in enumerate(wanted)
    ]


def sent(world: World, wanted: list[Wants]) -> list[bytes]:
    paths = paths_of(wanted)
    world.network.send(b"".join(request_bytes("GET", path.decode()) for path in paths))
    return paths


@settings(derandomize=True, deadline=None, max_examples=300)
@given(wanted=REQUESTS, moves=MOVES)
def test_every_request_is_answered_once_and_in_order_whatever_the_network_does(
    wanted: list[Wants], moves: list[tuple[Move, int]]
):
    world = World()
    paths = sent(world, wanted)
    for move, count in moves:
        world.move(move, count)
        assert world.answers == paths[: len(world.answers)]
    world.settle()
    assert world.answers == paths
    assert world.slot.state is SlotState.HEAD
    assert world.network.takes_input


@settings(derandomize=True, deadline=None, max_examples=300)
@given(wanted=REQUESTS, moves=MOVES)
def test_a_connection_that_breaks_anywhere_is_released_once_and_its_number_is_free(
    wanted: list[Wants], moves: list[tuple[Move, int]]
):
    world = World()
    sent(world, wanted)
    for move, count in moves:
        world.move(move, count)
    holders = sorted({loan.shard for loan in world.dispatcher.loans})
    world.network.drop()
    assert world.dispatcher.released == [(0, holders)]
    assert world.dispatcher.forgotten == [world.connection]
    assert world.connections == set()
    again = world.slots.take()
    assert (again.number, again.generation) == (0, len(world.dispatcher.loans))


@settings(derandomize=True, deadline=None, max_examples=300)
@given(wanted=REQUESTS, moves=MOVES)
def test_the_end_comes_behind_every_answer_although_the_client_reads_late(
    wanted: list[Wants], moves: list[tuple[Move, int]]
):
    world = World()
    paths = sent(world, wanted)
    world.network.send(b"no request at all\r\n\r\n")
    for move, count in moves:
        world.move(move, count)
    world.settle()
    assert world.answers[: len(paths)] == paths
    assert world.network.written[len(paths)].startswith(b"HTTP/1.1 400 ")
    assert len(world.network.written) == len(paths) + 1
    assert world.network.has_shut_down
    assert world.slot.state is SlotState.ENDING


def test_a_world_that_does_not_hold_a_loan_back_is_noticed():
    world = World()
    world.network.stall()
    world.network.write(b"x")
    head = SimpleNamespace(path=b"/shard0")
    try:
        world.choose(head)  # type: ignore[arg-type]
    except AssertionError:
        return
    raise RuntimeError("the tool cannot see it")
