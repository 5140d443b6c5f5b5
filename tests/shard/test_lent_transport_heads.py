"""Reply heads that wait for their bodies: one write for both, and never a head that is lost."""

from __future__ import annotations

import asyncio

import pytest

from sessions.lending.cells import Cells, CellState
from sessions.shard.lent_transport import JOIN_BYTES, HeldHeads, HouseTransport, LentTransport

SLOT, GENERATION = 3, 7
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"


class Wire(asyncio.Transport):
    """A transport that keeps what is written to it, and what the cell said at that moment."""

    def __init__(self, cells: Cells) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.states: list[CellState] = []
        self.is_closed = False
        self._cells = cells

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed
        self.writes.append(bytes(data))
        self.states.append(self._cells.read(SLOT, GENERATION))

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


class Lent:
    """A lent connection's transport over a wire, in the middle of a loan."""

    def __init__(self, *, house: bool) -> None:
        self.cells = Cells(SLOT + 1)
        self.wire = Wire(self.cells)
        self.closed = 0
        held = HeldHeads()
        self.transport = (
            HouseTransport(self.wire, self.cells, SLOT, held, self._on_closed)
            if house
            else LentTransport(self.wire, self.cells, SLOT, held)
        )
        self.transport.begin_loan(GENERATION)

    def _on_closed(self) -> None:
        self.closed += 1

    @property
    def state(self) -> CellState:
        return self.cells.read(SLOT, GENERATION)


@pytest.fixture(params=[False, True], ids=["lent", "house"])
async def lent(request: pytest.FixtureRequest) -> Lent:
    return Lent(house=request.param)


async def test_head_and_body_leave_in_one_write(lent: Lent) -> None:
    lent.transport.write(HEAD)
    lent.transport.write(b"body")
    assert lent.wire.writes == [HEAD + b"body"]
    await asyncio.sleep(0)
    assert lent.wire.writes == [HEAD + b"body"]


async def test_a_head_without_a_body_leaves_when_the_loop_turns(lent: Lent) -> None:
    lent.transport.write(HEAD)
    assert lent.wire.writes == []
    await asyncio.sleep(0)
    assert lent.wire.writes == [HEAD]
    lent.transport.write(b"body")
    assert lent.wire.writes == [HEAD, b"body"]


async def test_the_cell_says_replying_from_the_first_written_byte_on(lent: Lent) -> None:
    lent.transport.write(HEAD)
    assert lent.state is CellState.AWAITING
    lent.transport.write(b"body")
    assert lent.wire.states == [CellState.REPLYING]
    assert lent.transport.has_replied


@pytest.mark.parametrize("body", [bytearray(b"body"), memoryview(b"body")])
async def test_a_body_may_be_any_bytes(lent: Lent, body: bytearray | memoryview) -> None:
    lent.transport.write(HEAD)
    lent.transport.write(body)
    assert lent.wire.writes == [HEAD + b"body"]


@pytest.mark.parametrize(("size", "writes"), [(JOIN_BYTES, 1), (JOIN_BYTES + 1, 2)])
async def test_a_long_body_is_not_copied(lent: Lent, size: int, writes: int) -> None:
    lent.transport.write(HEAD)
    lent.transport.write(bytes(size))
    assert b"".join(lent.wire.writes) == HEAD + bytes(size)
    assert len(lent.wire.writes) == writes


async def test_an_interim_reply_does_not_wait(lent: Lent) -> None:
    told: list[None] = []
    lent.transport.on_interim = lambda: told.append(None)
    lent.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert lent.wire.writes == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    assert lent.wire.states == [CellState.AWAITING]
    assert told == [None]
    assert not lent.transport.has_replied


async def test_a_head_can_be_released_before_the_loop_turns(lent: Lent) -> None:
    lent.transport.write(HEAD)
    lent.transport.release_head()
    lent.transport.release_head()
    assert lent.wire.writes == [HEAD]
    assert lent.state is CellState.REPLYING


async def test_closing_sends_the_head_first(lent: Lent) -> None:
    lent.transport.write(HEAD)
    lent.transport.close()
    assert lent.wire.writes == [HEAD]


async def test_aborting_forgets_the_head(lent: Lent) -> None:
    lent.transport.write(HEAD)
    lent.transport.abort()
    await asyncio.sleep(0)
    assert lent.wire.writes == []


async def test_a_head_whose_client_has_gone_is_not_written(lent: Lent) -> None:
    lent.transport.write(HEAD)
    lent.wire.close()
    await asyncio.sleep(0)
    assert lent.wire.writes == []
    assert lent.state is CellState.AWAITING


async def test_a_dropped_head_gives_way_to_another(lent: Lent) -> None:
    lent.transport.write(HEAD)
    lent.transport.drop_head()
    await asyncio.sleep(0)
    assert lent.wire.writes == []
    assert not lent.transport.has_replied
    lent.transport.write(b"HTTP/1.1 413 Content Too Large\r\n\r\n")
    lent.transport.write(b"too large")
    assert lent.wire.writes == [b"HTTP/1.1 413 Content Too Large\r\n\r\ntoo large"]


async def test_dropping_after_a_written_head_changes_nothing(lent: Lent) -> None:
    lent.transport.write(HEAD)
    lent.transport.release_head()
    lent.transport.drop_head()
    assert lent.transport.has_replied
    lent.transport.write(b"body")
    assert lent.wire.writes == [HEAD, b"body"]


async def test_heads_of_many_connections_leave_in_one_turn() -> None:
    cells = Cells(SLOT + 1)
    held = HeldHeads()
    wires = [Wire(cells), Wire(cells)]
    for slot, wire in enumerate(wires):
        LentTransport(wire, cells, slot, held).write(HEAD)
    await asyncio.sleep(0)
    assert [wire.writes for wire in wires] == [[HEAD], [HEAD]]
