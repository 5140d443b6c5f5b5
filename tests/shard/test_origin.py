"""Where a client reached us: its words first, then its socket, then what we were told to bind."""

from __future__ import annotations

import pytest

from sessions.shard.origin import origin_of

BIND = "127.0.0.1:8000"


def scope(*headers: tuple[bytes, bytes], server: object = ("10.0.0.1", 80)) -> dict[str, object]:
    return {"scheme": "http", "headers": list(headers), "server": server}


@pytest.mark.parametrize("server", [("10.0.0.1", 80), ("/run/s.sock", None), None])
def test_the_host_header_comes_first(server: object):
    found = scope((b"accept", b"*/*"), (b"host", b"pod-7.example:81"), server=server)
    assert origin_of(found, BIND) == "http://pod-7.example:81"


@pytest.mark.parametrize(
    ("server", "origin"),
    [(("10.0.0.1", 80), "http://10.0.0.1:80"), (("::1", 8000), "http://[::1]:8000")],
)
@pytest.mark.parametrize("headers", [[], [(b"host", b"")]])
def test_without_a_host_the_socket_tells(
    headers: list[tuple[bytes, bytes]], server: object, origin: str
):
    assert origin_of(scope(*headers, server=server), BIND) == origin


@pytest.mark.parametrize("server", [("/run/shard-0.sock", None), None])
@pytest.mark.parametrize(
    ("bind", "origin"),
    [
        (BIND, "http://127.0.0.1:8000"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("unix:/run/s.sock", "http://localhost"),
        ("fd://3", "http://localhost"),
    ],
)
def test_over_a_unix_socket_the_bind_address_tells_if_it_is_one(
    server: object, bind: str, origin: str
):
    assert origin_of(scope(server=server), bind) == origin


def test_a_scope_without_a_server_is_like_a_unix_socket():
    assert origin_of({"scheme": "http", "headers": []}, BIND) == f"http://{BIND}"
