"""Downloads from a server that answers as told."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from benchmarks.downloads import downloading, time_download
from benchmarks.load import LoadError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


@contextlib.contextmanager
def served(reply: bytes) -> Iterator[tuple[str, int]]:
    """A server that gives every connection the same bytes and closes it."""

    def answer() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_reply_is_read_to_its_end_and_counted_by_its_length():
    size = 3 << 20
    with served(HEAD % size + b"x" * size) as address:
        run = time_download(address, "/x")
    assert run.count * (1 << 30) == size
    assert run.duration_s > 0


@pytest.mark.parametrize(
    "reply",
    [
        HEAD % 10 + b"short",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\n\r\nno length",
        b"",
    ],
)
def test_what_is_no_whole_reply_fails(reply: bytes):
    with served(reply) as address, pytest.raises(LoadError):
        time_download(address, "/x")


def test_downloads_go_on_while_the_block_runs():
    with served(HEAD % 5 + b"12345") as address, downloading(address, 2, "/x"):
        pass


def test_downloads_that_cannot_begin_fail():
    refused = downloading(("127.0.0.1", 1), 1, "/x")
    with pytest.raises(LoadError), refused:
        pass
