"""A pipeline that the front answers itself: in order, and in turns with everything else."""

from __future__ import annotations

import pytest

from sessions.lending.connection import HEADS_PER_TURN, Connection
from sessions.lending.place import Place
from sessions.lending.probes import ProbeReply
from sessions.wire.head import Head
from tests.support.fronts import FrontStage
from tests.support.loops import BOTH_LOOPS, Backend
from tests.support.raw import request_bytes

LIVE = request_bytes("GET", "/livez")
READY = request_bytes("GET", "/readyz")
POST = request_bytes("POST", "/sessions/a/x", body=b"hello")


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


@pytest.fixture
def answered(stage: FrontStage, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The paths of the probes that the front answered so far."""
    paths: list[bytes] = []
    answer_probe = stage.front.answer_probe

    def noted(head: Head) -> ProbeReply | None:
        found = answer_probe(head)
        if found is not None:
            paths.append(head.path)
        return found

    monkeypatch.setattr(stage.front, "answer_probe", noted)
    return paths


@pytest.mark.parametrize("count", [HEADS_PER_TURN, HEADS_PER_TURN + 1, 10 * HEADS_PER_TURN])
async def test_one_turn_of_the_loop_answers_a_part_of_a_pipeline(
    stage: FrontStage, answered: list[bytes], count: int
) -> None:
    client = await stage.connect()
    connection = await stage.connection()
    connection.data_received(LIVE * count)
    assert len(answered) == HEADS_PER_TURN
    assert [(await client.read_reply()).status for _ in range(count)] == [200] * count
    assert len(answered) == count


async def test_a_long_pipeline_is_answered_in_order(
    stage: FrontStage, answered: list[bytes]
) -> None:
    count = 2 * HEADS_PER_TURN
    client = await stage.connect()
    await client.send((LIVE + READY + READY) * count)
    replies = [await client.read_reply() for _ in range(3 * count)]
    assert answered == [b"/livez", b"/readyz", b"/readyz"] * count
    first, second, third = replies[:3]
    assert second.headers == third.headers
    assert [reply.body for reply in replies] == [first.body, second.body, third.body] * count
    assert (await client.ask(LIVE)).status == 200  # it reads on


async def test_nothing_is_read_between_the_turns_of_a_pipeline(stage: FrontStage) -> None:
    await stage.connect()
    connection = await stage.connection()
    connection.data_received(LIVE * (HEADS_PER_TURN + 1))
    assert not connection.transport.is_reading()


async def test_a_request_behind_a_long_pipeline_is_lent_while_it_can_be_read(
    stage: FrontStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    lend = stage.dispatcher.lend
    was_reading: list[bool] = []

    def noted(connection: Connection, place: Place, head: Head, payload: bytes) -> None:
        was_reading.append(connection.transport.is_reading())
        lend(connection, place, head, payload)

    monkeypatch.setattr(stage.dispatcher, "lend", noted)
    await stage.connect()
    connection = await stage.connection()
    connection.data_received(LIVE * (HEADS_PER_TURN + 1) + POST)
    loan = await stage.loan()
    assert loan.payload == POST
    assert was_reading == [True]  # else the rest of a body is never read in a lone shard


async def test_a_client_that_leaves_between_the_turns_ends_the_pipeline(
    stage: FrontStage, answered: list[bytes]
) -> None:
    await stage.connect()
    connection = await stage.connection()
    connection.data_received(LIVE * (10 * HEADS_PER_TURN))
    connection.transport.abort()
    await stage.wait_empty()
    assert len(answered) <= 2 * HEADS_PER_TURN  # the loop had planned one more turn already
