"""Tests of benchmarks.load: what wrk says, and the reader of large replies."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from benchmarks.load import LoadError, parse_wrk, read_large

_LINE = (
    '{"requests": %d, "duration_us": 2000000, "bytes": 9, "errors": %d, "p50_us": 500, "p99_us": 7}'
)


def test_parse_wrk_reads_its_last_line() -> None:
    run = parse_wrk("Running 2s test\n  noise\n" + _LINE % (100, 0) + "\n")
    assert (run.count, run.duration_s, run.p50_ms, run.p99_ms) == (100, 2.0, 0.5, 0.007)


@pytest.mark.parametrize(("requests", "errors"), [(100, 1), (0, 0)])
def test_parse_wrk_refuses_a_run_with_errors_or_without_replies(requests: int, errors: int) -> None:
    with pytest.raises(LoadError, match=f"{errors} errors and {requests} replies"):
        parse_wrk(_LINE % (requests, errors))


class OneReply:
    """A server for one connection that answers with given bytes."""

    def __init__(self, reply: bytes) -> None:
        self._reply = reply
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        self.request = b""

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()
        return host, port

    def _serve(self) -> None:
        sock, _ = self._listener.accept()
        with sock:
            self.request = sock.recv(65536)
            sock.sendall(self._reply)

    def close(self) -> None:
        self._thread.join(10)
        self._listener.close()


@pytest.fixture
def serve() -> Iterator[type[OneReply]]:
    made: list[OneReply] = []

    class Kept(OneReply):
        def __init__(self, reply: bytes) -> None:
            super().__init__(reply)
            made.append(self)

    yield Kept
    for server in made:
        server.close()


def test_read_large_reads_a_reply_to_its_end(serve: type[OneReply]) -> None:
    server = serve(b"HTTP/1.1 200 OK\r\ncontent-length: 3000000\r\n\r\n" + b"x" * 3_000_000)
    run = read_large(server.address, 3_000_000)
    assert run.count == 3_000_000 / (1 << 30)
    assert server.request.startswith(b"GET /sessions/bench-1/big?bytes=3000000 HTTP/1.1\r\n")


def test_read_large_refuses_a_reply_that_ends_early(serve: type[OneReply]) -> None:
    server = serve(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345")
    with pytest.raises(LoadError, match="5 bytes early"):
        read_large(server.address, 10)


@pytest.mark.parametrize("reply", [b"HTTP/1.1 503 Service Unavailable\r\n\r\n", b"HTTP/1.1 2", b""])
def test_read_large_refuses_what_is_no_good_reply(serve: type[OneReply], reply: bytes) -> None:
    server = serve(reply)
    with pytest.raises(LoadError, match="begins with"):
        read_large(server.address, 10)
