"""Empty lines before a head: they are passed over, and they buy no time."""

from __future__ import annotations

import pytest

from tests.support.fronts import FrontStage
from tests.support.raw import request_bytes
from tests.support.replies import ConnectionEndedError

LIVE = request_bytes("GET", "/livez")


@pytest.mark.parametrize("pieces", [[b"\r\n"], [b"\r", b"\n"], [b"\r\n\r", b"\n\r\n"]])
@pytest.mark.parametrize("before", [b"", LIVE], ids=["new", "used"])
async def test_empty_lines_do_not_restart_the_idle_time(
    stage: FrontStage, before: bytes, pieces: list[bytes]
) -> None:
    client = await stage.connect()
    if before:
        await client.ask(before)
    connection = await stage.connection()
    deadline = connection.deadline
    for piece in pieces * 3:
        await stage.pass_time(1)
        await client.send(piece)
    await stage.pass_time(stage.group.settings.idle_timeout_s - 3 * len(pieces) - 0.5)
    assert connection.deadline == deadline
    await stage.pass_time(1)
    with pytest.raises(ConnectionEndedError):
        await client.read_reply()


async def test_a_head_after_empty_lines_has_the_time_of_a_head(stage: FrontStage) -> None:
    client = await stage.connect()
    connection = await stage.connection()
    await client.send(b"\r\n\r")
    await stage.pass_time(1)
    await client.send(b"\nGE")
    await stage.pass_time(1)
    assert connection.deadline <= stage.clock.now + stage.group.settings.head_timeout_s
    await stage.pass_time(stage.group.settings.head_timeout_s)
    assert (await client.read_reply()).status == 408
