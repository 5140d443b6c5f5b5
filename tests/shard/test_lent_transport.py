"""What uvicorn takes for its transport: reading on demand, marks, and closes that end a loan only.

Heads that wait for their bodies have a test module of their own.
"""

from __future__ import annotations

import asyncio

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from sessions.lending.cells import Cells, CellState
from sessions.shard.lent_transport import HeldHeads, HouseTransport, LentTransport, SpentTransport

SLOT = 2
REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


class Wire(asyncio.Transport):
    """A transport whose buffer the test fills and empties."""

    def __init__(self) -> None:
        super().__init__()
        self.is_closed = False
        self.reads = True
        self.buffered = 0
        self.written = b""
        self.limits: list[tuple[int | None, int | None]] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def get_extra_info(self, name: str, default: object = None) -> object:
        return (name, default)

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits.append((high, low))

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def cells() -> Cells:
    return Cells(SLOT + 1)


@pytest.fixture
async def lent(wire: Wire, cells: Cells) -> LentTransport:
    """A started transport in its first loan."""
    made = LentTransport(wire, cells, SLOT, HeldHeads())
    made.begin_loan(1)
    made.on_started()
    return made


@pytest.fixture
def ends() -> list[None]:
    return []


@pytest.fixture
async def house(wire: Wire, cells: Cells, ends: list[None]) -> HouseTransport:
    made = HouseTransport(wire, cells, SLOT, HeldHeads(), lambda: ends.append(None))
    made.begin_loan(1)
    return made


# --- reading


async def test_a_pause_is_at_once_and_reading_again_waits_for_a_reason(
    wire: Wire, lent: LentTransport
) -> None:
    lent.pause_reading()
    assert not wire.reads
    lent.resume_reading()
    assert not wire.reads
    lent.read_now()
    assert wire.reads


async def test_a_body_that_is_missing_is_reason_enough(wire: Wire, lent: LentTransport) -> None:
    lent.is_body_missing = True
    lent.pause_reading()
    lent.resume_reading()
    assert wire.reads


async def test_reading_now_reads_nothing_that_is_not_wanted(
    wire: Wire, lent: LentTransport
) -> None:
    lent.pause_reading()
    lent.read_now()
    assert not wire.reads


async def test_a_pause_before_the_loop_reads_is_made_up_for(wire: Wire, cells: Cells) -> None:
    """uvloop starts to read after `connection_made`, whatever was asked for in it."""
    lent = LentTransport(wire, cells, SLOT, HeldHeads())
    lent.begin_loan(1)
    lent.pause_reading()
    assert wire.reads
    lent.on_started()
    assert not wire.reads


async def test_a_start_that_nobody_paused_reads_on(wire: Wire, lent: LentTransport) -> None:
    assert wire.reads
    lent.pause_reading()
    lent.resume_reading()
    lent.on_started()
    assert not wire.reads, "still only on demand"


async def test_enough_input_is_enough_until_the_next_loan(wire: Wire, lent: LentTransport) -> None:
    lent.stop_input()
    assert not wire.reads
    lent.is_body_missing = True
    lent.resume_reading()
    lent.read_now()
    assert not wire.reads
    lent.begin_loan(2)
    lent.read_now()
    assert wire.reads


@pytest.mark.parametrize("paused_before", [False, True])
async def test_parking_stops_to_read_whatever_was_before(
    wire: Wire, lent: LentTransport, *, paused_before: bool
) -> None:
    flow = FlowControl(lent)
    if paused_before:
        flow.pause_reading()
    lent.park(flow)
    assert flow.read_paused
    assert not wire.reads
    lent.read_now()
    assert not wire.reads, "a late sweep reads nothing that belongs to the router"


async def test_a_house_connection_is_read_unless_it_is_paused(
    wire: Wire, house: HouseTransport
) -> None:
    house.pause_reading()
    assert not wire.reads
    house.read_now()
    assert not wire.reads
    house.resume_reading()
    assert wire.reads


async def test_enough_input_of_a_house_connection_is_enough(
    wire: Wire, house: HouseTransport
) -> None:
    house.stop_input()
    house.resume_reading()
    assert not wire.reads
    house.hand_over()
    assert wire.reads


@pytest.mark.parametrize("paused_before", [False, True])
async def test_a_house_connection_is_read_on_by_its_own_process(
    wire: Wire, house: HouseTransport, *, paused_before: bool
) -> None:
    flow = FlowControl(house)
    if paused_before:
        flow.pause_reading()
    house.stop_input()
    house.park(flow)
    assert not flow.read_paused
    assert wire.reads


# --- marks (rule 16)


async def test_an_interim_reply_is_told_and_does_not_mark(
    wire: Wire, lent: LentTransport, cells: Cells
) -> None:
    told: list[None] = []
    lent.on_interim = lambda: told.append(None)
    lent.write(INTERIM)
    assert wire.written == INTERIM
    assert told == [None]
    assert not lent.has_replied
    assert cells.read(SLOT, 1) is CellState.AWAITING


async def test_a_final_reply_marks_its_own_generation(
    wire: Wire, lent: LentTransport, cells: Cells
) -> None:
    lent.write(REPLY)
    lent.release_head()
    assert wire.written == REPLY
    assert lent.has_replied
    assert cells.read(SLOT, 1) is CellState.REPLYING
    lent.begin_loan(2)
    assert not lent.has_replied
    assert cells.read(SLOT, 2) is CellState.AWAITING
    lent.mark_complete()
    assert cells.read(SLOT, 2) is CellState.COMPLETE


# --- ends


async def test_a_lent_connection_closes_and_aborts_the_copy(
    wire: Wire, lent: LentTransport
) -> None:
    assert not lent.is_closing()
    lent.close()
    assert wire.is_closed
    assert lent.is_closing()


async def test_what_it_does_not_change_it_passes_on(wire: Wire, lent: LentTransport) -> None:
    wire.buffered = 7
    assert lent.get_write_buffer_size() == 7
    assert lent.get_extra_info("socket", 3) == ("socket", 3)
    lent.set_write_buffer_limits(0)
    assert wire.limits == [(0, None)]
    lent.hand_over()
    lent.on_flushed()
    assert not wire.is_closed
    lent.abort()
    assert wire.is_closed


async def test_closing_a_house_loan_closes_no_connection(
    wire: Wire, house: HouseTransport, ends: list[None]
) -> None:
    house.close()
    house.close()
    assert ends == [None]
    assert house.is_closing()
    assert not wire.is_closed
    assert not wire.reads, "what comes now is no part of this loan"
    house.write(REPLY)
    house.release_head()
    assert wire.written == b"", "what is written now is no part of it, either"


async def test_closing_a_house_loan_waits_until_its_reply_has_left(
    wire: Wire, house: HouseTransport, ends: list[None]
) -> None:
    wire.buffered = 5
    house.close()
    assert not ends
    assert wire.limits == [(0, None)]
    wire.buffered = 0
    house.on_flushed()
    assert ends == [None]
    assert wire.limits == [(0, None), (None, None)]


async def test_a_flush_of_an_open_house_loan_ends_nothing(
    house: HouseTransport, ends: list[None]
) -> None:
    house.on_flushed()
    assert not ends


@pytest.mark.parametrize("buffered", [0, 5])
async def test_a_house_loan_of_a_lost_connection_ends_by_that_loss(
    wire: Wire, house: HouseTransport, ends: list[None], buffered: int
) -> None:
    wire.is_closed = True
    wire.buffered = buffered
    assert house.is_closing()
    house.close()
    house.on_flushed()
    assert not ends


def test_a_spent_transport_closes_nothing() -> None:
    SpentTransport().close()
