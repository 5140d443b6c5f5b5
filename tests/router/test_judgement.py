"""What becomes of a dead shard's exchanges, with fakes: one case per state cell and policy."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.group import GroupDyingError, ShardDiedError, ShardGoneError
from sessions.lending.cells import Cells, CellState
from sessions.lending.front import Front
from sessions.lending.messages import Kind, LendFlag, Message
from sessions.lending.place import Place
from sessions.lending.slots import SlotState
from sessions.router.dispatch import Dispatch
from sessions.router.judgement import judge_and_go_on, judge_for_halt
from sessions.routing.ids import mint_session_id
from sessions.wire.head import Head
from tests.support.fake_links import FakeConnection, channel_of, head_of, link_of
from tests.support.members import group_of

DEAD, ALIVE = 1, 0
SESSION_HEAD = head_of("POST", f"/sessions/{mint_session_id(DEAD, 2)}/x", b"hello")
PLAIN_HEAD = head_of("POST", "/sessions", b"hello")
PAYLOAD = b"POST / HTTP/1.1\r\nHost: a\r\n\r\n"


class Scene:
    """Two shards, a dead one and a live one, and the connections of one front."""

    def __init__(self, tmp_path: Path) -> None:
        self.cells = Cells(16)
        self.dispatch = Dispatch(2)
        for index in (ALIVE, DEAD):
            self.dispatch.add(link_of(index))
        self.dead = self.dispatch.links[DEAD]
        self.front = Front(group_of(tmp_path, shards=2), self.dispatch)
        self.connections: list[FakeConnection] = []

    def lent(
        self, cell: CellState | None = None, *, to: int = DEAD, head: Head = SESSION_HEAD
    ) -> FakeConnection:
        """A connection that was lent, with what the shard wrote into its cell, if anything."""
        connection = FakeConnection(len(self.connections), generation=3)
        self.connections.append(connection)
        self.front.connections.add(connection.real)
        self.dispatch.lend(connection.real, Place(shard=to), head, PAYLOAD)
        if cell is not None:
            self.cells.mark(connection.slot.number, connection.slot.generation, cell)
        connection.calls.clear()
        return connection

    def halt(self) -> None:
        """Judge by the `halt` policy."""
        judge_for_halt(self.dead, self.front, self.cells, lambda: GroupDyingError("it died"))

    def go_on(self) -> None:
        """Judge by the `continue` policy."""
        judge_and_go_on(self.dead, self.front, self.cells, self.dispatch)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def error_in(connection: FakeConnection) -> ClientVisibleError:
    """The error of its only call, `answer_dead`."""
    ((name, error, _head),) = connection.calls
    assert name == "answer_dead"
    return cast("ClientVisibleError", error)


def test_other_words_that_did_not_leave_are_no_loans(scene: Scene) -> None:
    """The numbers in a CLAIMED may be those of a slot and its generation."""
    connection = scene.lent(None)
    slot = connection.slot
    number, generation = slot.number, slot.generation
    scene_channel = channel_of(scene.dead)
    scene_channel.unsent = [Message(Kind.CLAIMED, 1, number, 0, generation, b"")]
    scene.go_on()
    assert isinstance(error_in(connection), ShardGoneError)


# --- halt


@pytest.mark.parametrize("cell", [None, CellState.AWAITING])
def test_a_client_without_a_byte_is_told_when_the_group_halts(
    scene: Scene, cell: CellState | None
) -> None:
    connection = scene.lent(cell)
    scene.halt()
    assert isinstance(error_in(connection), GroupDyingError)
    assert connection.calls[0][2] is SESSION_HEAD


def test_a_cell_of_an_earlier_loan_says_nothing(scene: Scene) -> None:
    connection = scene.lent()
    scene.cells.mark(0, connection.slot.generation - 1, CellState.REPLYING)
    scene.halt()
    assert isinstance(error_in(connection), GroupDyingError)


@pytest.mark.parametrize(
    ("cell", "call"), [(CellState.REPLYING, "cut"), (CellState.COMPLETE, "end")]
)
def test_a_reply_in_the_middle_is_cut_and_a_whole_one_is_let_be_when_the_group_halts(
    scene: Scene, cell: CellState, call: str
) -> None:
    connection = scene.lent(cell)
    scene.halt()
    assert connection.names == [call]
    assert connection.slot.state is SlotState.ENDING


@pytest.mark.parametrize("policy", ["halt", "go_on"])
def test_other_connections_are_left_alone_but_for_their_copies(scene: Scene, policy: str) -> None:
    lent_elsewhere = scene.lent(CellState.REPLYING, to=ALIVE)
    parked = scene.lent()
    parked.slot.take_back(DEAD, kept=True)
    del scene.dead.loans[parked.slot.number]
    getattr(scene, policy)()
    assert lent_elsewhere.calls == []
    assert lent_elsewhere.slot.is_lent_to(ALIVE)
    assert parked.calls == []
    assert parked.slot.parked_shards == []
    assert not scene.dead.loans


# --- continue


@pytest.mark.parametrize(
    ("head", "kind"), [(SESSION_HEAD, ShardGoneError), (PLAIN_HEAD, ShardDiedError)]
)
@pytest.mark.parametrize("cell", [None, CellState.AWAITING])
def test_a_client_without_a_byte_is_told_by_whether_it_named_a_session(
    scene: Scene, head: Head, kind: type[ClientVisibleError], cell: CellState | None
) -> None:
    connection = scene.lent(cell, head=head)
    scene.go_on()
    error = error_in(connection)
    assert type(error) is kind
    assert str(scene.dead.pid) in error.message
    assert not error.should_retry


def test_a_reply_in_the_middle_is_cut_when_the_group_goes_on(scene: Scene) -> None:
    connection = scene.lent(CellState.REPLYING)
    scene.go_on()
    assert connection.names == ["cut"]


def test_a_connection_with_a_whole_reply_goes_on(scene: Scene) -> None:
    connection = scene.lent(CellState.COMPLETE)
    scene.go_on()
    assert connection.calls == [("go_on", b"")]
    assert connection.slot.state is SlotState.HEAD


def undelivered(connection: FakeConnection, *, generation: int | None = None) -> Message:
    slot = connection.slot
    number = slot.generation if generation is None else generation
    return Message(Kind.LEND, 0, slot.number, 10, number, PAYLOAD)


def test_a_loan_with_a_reserved_key_that_never_left_is_read_again_without_it(
    scene: Scene,
) -> None:
    connection = scene.lent(head=PLAIN_HEAD)
    kept = undelivered(connection)
    kept = kept._replace(argument=LendFlag.RESERVED, payload=b"k" * 16 + PAYLOAD)
    channel_of(scene.dead).unsent = [kept]
    scene.go_on()
    assert connection.calls == [("go_on", PAYLOAD)]


@pytest.mark.parametrize("head", [SESSION_HEAD, PLAIN_HEAD])
def test_a_loan_that_never_left_is_read_again(scene: Scene, head: Head) -> None:
    connection = scene.lent(head=head)
    channel_of(scene.dead).unsent = [undelivered(connection)]
    scene.go_on()
    assert connection.calls == [("go_on", PAYLOAD)]


def test_a_loan_that_was_delivered_is_never_lent_again(scene: Scene) -> None:
    """Also not because an earlier loan of the slot still stood in the queue."""
    connection = scene.lent(head=PLAIN_HEAD)
    stale = undelivered(connection, generation=connection.slot.generation - 1)
    channel_of(scene.dead).unsent = [stale]
    scene.go_on()
    assert isinstance(error_in(connection), ShardDiedError)


def test_the_shard_is_buried_before_anybody_goes_on(scene: Scene) -> None:
    """What goes on is chosen for anew, and must not come back to the dead."""

    class Asking(FakeConnection):
        def go_on(self, unread: bytes) -> None:
            assert not scene.dead.is_alive
            assert scene.dispatch.choose(None).shard == ALIVE
            super().go_on(unread)

    connection = Asking(0, generation=3)
    scene.front.connections.add(connection.real)
    scene.dispatch.lend(connection.real, Place(shard=DEAD), PLAIN_HEAD, PAYLOAD)
    channel_of(scene.dead).unsent = [undelivered(connection)]
    scene.go_on()
    assert connection.names[-1] == "go_on"
    assert channel_of(scene.dead).is_closed
    assert scene.dispatch.alive_count == 1


def test_every_exchange_is_judged(scene: Scene) -> None:
    states = [CellState.AWAITING, CellState.REPLYING, CellState.COMPLETE] * 4
    connections = [scene.lent(cell) for cell in states]
    scene.go_on()
    names = [connection.names for connection in connections]
    assert names == [["answer_dead"], ["cut"], ["go_on"]] * 4
    assert scene.dispatch.lent_count == 0
