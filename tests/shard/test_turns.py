"""An application that writes on and on lets the loop turn, whatever its client reads."""

from __future__ import annotations

import pytest

from sessions.shard.lent_transport import FAIR_BYTES
from tests.support.held_app import HeldApp
from tests.support.loops import BOTH_LOOPS, Backend, turn
from tests.support.raw import request_bytes
from tests.support.stages import Stage, asked

GET = request_bytes("GET", "/one")


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


@pytest.mark.parametrize("piece_bytes", [FAIR_BYTES // 4, FAIR_BYTES // 2])
async def test_the_loop_turns_after_so_many_bytes(
    stage: Stage, app: HeldApp, piece_bytes: int
) -> None:
    """Else one reply to a fast reader holds up all others of its shard."""
    client, call = await asked(stage, app, GET)
    (exchange,) = stage.exchanges
    held: list[int] = []
    exchange._lent.on_long_write = lambda: held.append(sent)
    await call.start(length=2 * FAIR_BYTES)
    for sent in range(piece_bytes, 2 * FAIR_BYTES + 1, piece_bytes):
        await call.write(bytes(piece_bytes), more=sent < 2 * FAIR_BYTES)
    assert held == [FAIR_BYTES, 2 * FAIR_BYTES]
    assert (await client.read_reply()).body_bytes == 2 * FAIR_BYTES


async def test_the_next_write_waits_for_one_turn(stage: Stage, app: HeldApp) -> None:
    _client, _call = await asked(stage, app, GET)
    (exchange,) = stage.exchanges
    exchange._lent.on_long_write()
    assert exchange.flow.write_paused
    await turn()
    assert not exchange.flow.write_paused


async def test_a_turn_does_not_end_the_wait_for_a_full_buffer(stage: Stage, app: HeldApp) -> None:
    _client, _call = await asked(stage, app, GET)
    (exchange,) = stage.exchanges
    exchange.pause_writing()
    exchange._let_loop_turn()
    await turn(5)
    assert exchange.flow.write_paused
    exchange.resume_writing()
    assert not exchange.flow.write_paused
