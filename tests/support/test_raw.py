"""Raw connections, tried on a real uvicorn in a thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn

from tests.support import apps
from tests.support.apps import pattern_of, receipt_of
from tests.support.raw import RawConnection, chunked, open_raw, request_bytes
from tests.support.replies import ConnectionEndedError
from tests.support.waiting import wait_until


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(apps.cases(), log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_until(lambda: server.started, "uvicorn started")
        yield listener.getsockname()
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
        assert not thread.is_alive()


def test_pipelined_requests_are_answered_in_order(address: tuple[str, int]):
    wire = b"".join(
        request_bytes("POST", f"/sessions/{n}/echo?id={n}&out=100", body=b"b" * n) for n in range(5)
    )
    with RawConnection(address) as connection:
        connection.send(wire)
        replies = [connection.read_reply() for _ in range(5)]
    assert [reply.header("x-got") for reply in replies] == [receipt_of(b"b" * n) for n in range(5)]
    assert [reply.body for reply in replies] == [pattern_of(str(n), 100) for n in range(5)]


@pytest.mark.parametrize("piece_bytes", [0, 1, 7])
def test_a_chunked_request_arrives_whole_in_pieces_of_any_size(
    address: tuple[str, int], piece_bytes: int
):
    request = request_bytes("POST", "/echo?ch&id=c&out=5", body=b"hello world", chunk_bytes=4)
    with RawConnection(address) as connection:
        connection.send(request, piece_bytes=piece_bytes)
        reply = connection.read_reply()
    assert reply.header("x-got") == receipt_of(b"hello world")
    assert (reply.framing, reply.body) == ("chunked", pattern_of("c", 5))


def test_an_end_by_the_server_is_seen(address: tuple[str, int]):
    with RawConnection(address) as connection:
        reply = connection.ask(request_bytes("GET", "/where", [("Connection", "close")]))
        assert reply.status == 200
        assert connection.read_to_end() == b""
        with pytest.raises(ConnectionEndedError):
            connection.read_reply()


def test_a_reply_to_head_and_one_to_http_1_0_are_read(address: tuple[str, int]):
    with RawConnection(address) as connection:
        assert connection.ask(request_bytes("HEAD", "/big?bytes=9"), head_only=True).body == b""
        assert connection.ask(request_bytes("GET", "/where", version="1.0")).version == "1.1"


def test_a_slow_reader_with_a_small_buffer_gets_every_byte(address: tuple[str, int]):
    with RawConnection(address, receive_buffer_bytes=4096) as connection:
        reply = connection.ask(request_bytes("GET", "/big?bytes=3000000"))
        assert reply.body_bytes == 3_000_000


async def test_both_drivers_read_the_same(address: tuple[str, int]):
    request = request_bytes("POST", "/echo?id=s&out=300000&drip", body=b"x" * 100000)
    async with open_raw(address) as connection:
        replies = [await connection.ask(request), await connection.ask(request)]
        await connection.send(request_bytes("GET", "/where", [("Connection", "close")]))
        assert (await connection.read_reply(keep_body=False)).body == b""
        assert await connection.read_to_end() == b""

    def blocking() -> list[object]:
        with RawConnection(address) as other:
            return [other.ask(request).comparable(), other.ask(request).comparable()]

    assert [reply.comparable() for reply in replies] == await asyncio.to_thread(blocking)


def pair_with_listener() -> tuple[RawConnection, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = RawConnection(listener.getsockname(), timeout_s=5)
        return connection, listener.accept()[0]


def test_a_half_close_ends_sending_only():
    connection, peer = pair_with_listener()
    with connection, peer:
        connection.send(b"last")
        connection.half_close()
        assert peer.recv(10) == b"last"
        assert peer.recv(10) == b""
        peer.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        assert connection.read_reply().status == 204


def test_a_reset_reaches_the_peer_as_one():
    connection, peer = pair_with_listener()
    with peer:
        connection.reset()
        with pytest.raises(ConnectionResetError):
            peer.recv(10)


def test_waiting_for_a_reply_has_an_end():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        RawConnection(listener.getsockname(), timeout_s=0.05) as connection,
        pytest.raises(TimeoutError),
    ):
        connection.read_reply()


async def test_awaiting_a_reply_has_an_end():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with open_raw(listener.getsockname(), timeout_s=0.05) as connection:
            with pytest.raises(TimeoutError):
                await connection.read_reply()


def test_requests_are_made_of_exactly_what_was_said():
    assert (
        request_bytes("GET", "/a", [("X", "1")]) == b"GET /a HTTP/1.1\r\nHost: test\r\nX: 1\r\n\r\n"
    )
    assert request_bytes("POST", "/", host="") == b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
    assert chunked(b"abcde", 2) == b"2\r\nab\r\n2\r\ncd\r\n1\r\ne\r\n0\r\n\r\n"
    assert chunked(b"", 2) == b"0\r\n\r\n"
