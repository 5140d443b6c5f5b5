import asyncio
from typing import Any

import pytest

from sessions.engine.connection import BURST_BYTES, EngineConnection
from sessions.engine.reply_reader import ReplyReader
from sessions.errors.client_visible import UnprocessableError
from sessions.errors.engine import EngineTimeoutError, EngineUnreachableError
from sessions.errors.unseen import LocalProtocolError
from tests.support.loops import turn
from tests.support.raw_replies import KeepingSink, chunked_reply, close_reply, length_reply

OK = length_reply(b"ok")
ASK = [b"GET / HTTP/1.1\r\n\r\n", b""]


class FakeTransport(asyncio.Transport):
    """The loop's side of a connection, as a test tells it."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.unsent_bytes = 0
        self.takes_input = True
        self.is_lost = False
        self.protocol: EngineConnection | None = None

    def writelines(self, list_of_data: Any) -> None:  # noqa: ANN401 - the loop's signature
        self.written += list_of_data

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def pause_reading(self) -> None:
        self.takes_input = False

    def resume_reading(self) -> None:
        self.takes_input = True

    def abort(self) -> None:
        asyncio.get_running_loop().call_soon(self.lose, None)

    def lose(self, error: Exception | None) -> None:
        if not self.is_lost and self.protocol is not None:
            self.is_lost = True
            self.protocol.connection_lost(error)

    def receive(self, data: bytes) -> None:
        assert self.protocol is not None
        while data:
            buffer = self.protocol.get_buffer(-1)
            count = min(len(data), len(buffer))
            buffer[:count] = data[:count]
            self.protocol.buffer_updated(count)
            data = data[count:]


class Stage:
    """A connection between exchanges, on a fake transport."""

    def __init__(self, buffer_bytes: int = 65536) -> None:
        self.ended: list[EngineConnection] = []
        self.connection = EngineConnection(memoryview(bytearray(buffer_bytes)), self.ended.append)
        self.transport = FakeTransport()
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)
        self.reader = ReplyReader(is_head_request=False)

    async def begin(
        self, sink: KeepingSink | None = None, stall_s: float = 30
    ) -> "asyncio.Task[bool]":
        """An exchange that has sent its request."""
        open_sink = sink.open if sink is not None else None
        self.reader = ReplyReader(is_head_request=False, open_sink=open_sink)
        task = asyncio.create_task(self.connection.exchange(ASK, self.reader, stall_s))
        await turn()
        return task


async def test_a_request_is_written_at_once_and_its_reply_read():
    stage = Stage(buffer_bytes=7)
    for _ in range(2):
        task = await stage.begin()
        assert not stage.connection.is_usable
        stage.transport.receive(OK)
        assert await task
        assert stage.reader.reply().body == b"ok"
        assert stage.connection.is_usable
        assert stage.connection.is_reused
    assert stage.transport.written == ASK * 2
    assert not stage.ended


async def test_a_connection_has_one_exchange_at_a_time_and_none_after_its_end():
    stage = Stage()
    task = await stage.begin()
    with pytest.raises(LocalProtocolError):
        await stage.connection.exchange(ASK, ReplyReader(is_head_request=False), 30)
    stage.transport.receive(length_reply(b"ok", b"connection: close"))
    assert not await task
    await stage.connection.wait_closed()
    assert stage.ended == [stage.connection]
    with pytest.raises(LocalProtocolError):
        await stage.connection.exchange(ASK, ReplyReader(is_head_request=False), 30)


@pytest.mark.parametrize("data", [b"", OK[:10], OK[:-1]])
async def test_an_end_before_the_whole_reply_is_an_error(data: bytes):
    stage = Stage()
    task = await stage.begin()
    stage.transport.receive(data)
    stage.connection.eof_received()
    with pytest.raises(EngineUnreachableError, match="broke off"):
        await task
    await stage.connection.wait_closed()


@pytest.mark.parametrize("data", [b"", OK[:10], OK[:-1]])
async def test_a_reset_before_the_whole_reply_is_an_error(data: bytes):
    stage = Stage()
    task = await stage.begin()
    stage.transport.receive(data)
    cause = ConnectionResetError(104, "Connection reset by peer")
    stage.transport.lose(cause)
    with pytest.raises(EngineUnreachableError, match="connection reset by peer") as caught:
        await task
    assert caught.value.__cause__ is cause


async def test_a_reply_may_end_with_its_connection():
    stage = Stage()
    task = await stage.begin()
    stage.transport.receive(close_reply(b"ok"))
    stage.connection.eof_received()
    assert not await task
    assert stage.reader.reply().body == b"ok"


@pytest.mark.parametrize("after", ["bytes", "eof", "lost"])
async def test_what_comes_right_behind_a_reply_spoils_the_connection(after: str):
    stage = Stage()
    task = await stage.begin()
    stage.transport.receive(OK)
    if after == "bytes":
        stage.transport.receive(b"x")
    elif after == "eof":
        stage.connection.eof_received()
    else:
        stage.transport.lose(None)
    assert not await task
    assert stage.reader.reply().body == b"ok"
    await stage.connection.wait_closed()


async def test_a_reply_before_the_request_was_sent_spoils_the_connection():
    stage = Stage()
    stage.transport.unsent_bytes = 1
    task = await stage.begin()
    stage.transport.receive(OK)
    assert not await task
    await stage.connection.wait_closed()


async def test_a_connection_that_ends_while_it_idles_says_so_at_once():
    stage = Stage()
    stage.connection.eof_received()
    assert stage.ended == [stage.connection]
    assert not stage.connection.is_usable


async def test_a_connection_that_speaks_while_it_idles_is_closed():
    stage = Stage()
    stage.transport.receive(b"HTTP/1.1 408 x\r\n\r\n")
    assert not stage.connection.is_usable
    await stage.connection.wait_closed()
    assert stage.ended == [stage.connection]


async def test_a_cancel_closes_the_connection():
    stage = Stage()
    task = await stage.begin()
    stage.transport.receive(OK[:-1])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stage.connection.wait_closed()


@pytest.mark.parametrize("has_failed", [False, True])
async def test_a_cancel_at_the_very_end_closes_the_connection(*, has_failed: bool):
    stage = Stage()
    task = await stage.begin()
    if has_failed:
        stage.transport.lose(None)
    else:
        stage.transport.receive(OK)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stage.connection.wait_closed()


async def test_reading_stops_while_the_sink_has_no_room():
    stage = Stage()
    sink = KeepingSink(has_room=lambda count: count != 0)
    sink.room.clear()
    task = await stage.begin(sink)
    stage.transport.receive(length_reply(b"abcdef")[:-3])
    await turn()
    assert (bytes(sink.data), stage.transport.takes_input) == (b"abc", False)
    sink.room.set()
    await turn()
    assert stage.transport.takes_input
    stage.transport.receive(b"def")
    assert await task
    assert bytes(sink.data) == b"abcdef"
    assert sink.waits == 1


async def test_a_reply_that_was_whole_while_the_sink_had_no_room_leaves_the_connection_reading():
    stage = Stage()
    sink = KeepingSink(has_room=lambda count: count != 0)
    sink.room.clear()
    task = await stage.begin(sink)
    stage.transport.receive(chunked_reply(b"abc"))
    await turn()
    assert not stage.transport.takes_input
    sink.room.set()
    assert await task
    assert stage.connection.is_usable
    assert stage.transport.takes_input


async def test_reading_rests_for_one_turn_of_the_loop_after_a_burst():
    stage, sink = Stage(), KeepingSink()
    reply = length_reply(b"x" * 3 * BURST_BYTES)
    task = await stage.begin(sink)
    stage.transport.receive(reply[: BURST_BYTES - 1])
    assert stage.transport.takes_input
    stage.transport.receive(reply[BURST_BYTES - 1 : BURST_BYTES])
    assert not stage.transport.takes_input
    await turn()
    assert stage.transport.takes_input
    stage.transport.receive(reply[BURST_BYTES : 2 * BURST_BYTES])
    assert not stage.transport.takes_input
    await turn()
    stage.transport.receive(reply[2 * BURST_BYTES :])
    assert await task
    assert len(sink.data) == 3 * BURST_BYTES


async def test_a_reply_that_ends_with_a_burst_leaves_nothing_to_rest_from():
    stage, sink = Stage(), KeepingSink()
    task = await stage.begin(sink)
    head_bytes = len(length_reply(b"x" * BURST_BYTES)) - BURST_BYTES
    reply = length_reply(b"x" * (BURST_BYTES - head_bytes))
    assert len(reply) == BURST_BYTES
    stage.transport.receive(reply)
    assert stage.transport.takes_input
    assert await task


async def test_a_rest_does_not_wake_a_reading_that_waits_for_the_sink():
    stage, sink = Stage(), KeepingSink()
    reply = length_reply(b"x" * 2 * BURST_BYTES)
    task = await stage.begin(sink)
    stage.transport.receive(reply[:BURST_BYTES])
    sink.has_room = lambda _: False
    sink.room.clear()
    stage.transport.receive(reply[BURST_BYTES:-1])  # what was on its way already
    await turn()
    assert not stage.transport.takes_input
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_connection_that_is_closed_while_it_rests_is_not_read_on():
    stage, sink = Stage(), KeepingSink()
    task = await stage.begin(sink)
    stage.transport.receive(length_reply(b"x" * 2 * BURST_BYTES)[:BURST_BYTES])
    stage.connection.abort()
    await asyncio.gather(task, return_exceptions=True)
    assert not stage.transport.takes_input


async def test_a_connection_lost_while_the_sink_has_no_room_is_an_error_after_what_came():
    stage = Stage()
    sink = KeepingSink(has_room=lambda count: count != 0)
    sink.room.clear()
    task = await stage.begin(sink)
    stage.transport.receive(length_reply(b"abcdef")[:-3])
    await turn()
    stage.transport.lose(None)
    sink.room.set()
    with pytest.raises(EngineUnreachableError, match="broke off"):
        await task
    assert bytes(sink.data) == b"abc"


async def test_a_cancel_while_the_sink_has_no_room_closes_the_connection():
    stage = Stage()
    sink = KeepingSink(has_room=lambda _: False)
    sink.room.clear()
    task = await stage.begin(sink)
    stage.transport.receive(length_reply(b"abcdef")[:-3])
    await turn()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stage.connection.wait_closed()


@pytest.mark.parametrize("field", ["error", "wait_error"])
async def test_an_error_of_the_sink_closes_the_connection_and_passes(field: str):
    stage = Stage()
    sink = KeepingSink(has_room=lambda _: False)
    setattr(sink, field, UnprocessableError("no room"))
    task = await stage.begin(sink)
    stage.transport.receive(length_reply(b"abcdef")[:-3])
    stage.transport.receive(b"d")  # still in flight when it failed
    with pytest.raises(UnprocessableError, match="no room"):
        await task
    await stage.connection.wait_closed()


async def test_an_exchange_that_stands_still_times_out_and_closes_the_connection():
    stage = Stage()
    task = await stage.begin(stall_s=0.01)
    with pytest.raises(EngineTimeoutError, match="in time"):
        await task
    await stage.connection.wait_closed()


def age(connection: EngineConnection, seconds: float) -> None:
    """As if the exchange had last got on so much earlier."""
    connection._moved_at -= seconds


async def test_each_byte_begins_the_time_anew():
    stage = Stage()
    task = await stage.begin()
    for data in (OK[:3], OK[3:20]):
        age(stage.connection, 31)
        stage.transport.receive(data)
        stage.connection._look(30)
        await turn()
        assert not task.done()
    age(stage.connection, 31)
    stage.connection._look(30)
    with pytest.raises(EngineTimeoutError):
        await task


async def test_the_time_stands_still_while_the_sink_has_no_room():
    stage = Stage()
    sink = KeepingSink(has_room=lambda _: False)
    sink.room.clear()
    task = await stage.begin(sink)
    stage.transport.receive(length_reply(b"abc")[:-1])
    await turn()
    age(stage.connection, 31)
    stage.connection._look(30)
    age(stage.connection, 31)
    sink.room.set()
    await turn()
    stage.connection._look(30)  # it begins anew with the reading
    stage.transport.receive(b"c")
    assert await task


async def test_a_request_that_is_still_being_sent_does_not_stand_still():
    stage = Stage()
    stage.transport.unsent_bytes = 100
    task = await stage.begin()
    stage.connection._unsent_bytes = 100
    for unsent in (99, 50):
        stage.transport.unsent_bytes = unsent
        age(stage.connection, 31)
        stage.connection._look(30)
        await turn()
        assert not task.done()
    age(stage.connection, 31)
    stage.connection._look(30)
    with pytest.raises(EngineTimeoutError):
        await task
