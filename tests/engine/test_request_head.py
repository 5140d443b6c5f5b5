import pytest

from sessions.engine.address import parse_address
from sessions.engine.engine import EngineRequest
from sessions.engine.request_head import TARGET_LIMIT_BYTES, render_request_head
from sessions.errors.client_visible import RequestError
from sessions.errors.unseen import LocalProtocolError

ADDRESS = parse_address("http://e:1/pool/v1")


def rendered(
    *headers: tuple[bytes, bytes],
    method: str = "POST",
    target: bytes = b"/x?q=%41",
    body: bytes = b"body",
) -> bytes:
    request = EngineRequest(method=method, target=target, headers=headers, body=body)
    return render_request_head(request, ADDRESS)


def test_host_and_length_are_ours_and_headers_keep_their_order():
    assert rendered((b"x-b", b"1"), (b"x-a", b""), (b"x-b", b"\xff 2")) == (
        b"POST /pool/x?q=%41 HTTP/1.1\r\nhost: e:1\r\n"
        b"x-b: 1\r\nx-a: \r\nx-b: \xff 2\r\ncontent-length: 4\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("method", "has_length"),
    [("GET", False), ("HEAD", False), ("DELETE", False), ("POST", True), ("PUT", True)],
)
def test_an_empty_body_has_a_length_where_a_body_has_a_meaning(method: str, *, has_length: bool):
    assert (b"content-length: 0" in rendered(method=method, body=b"")) is has_length


@pytest.mark.parametrize(
    "target",
    [
        b"",
        b"x",
        b"*",
        b"/a b",
        b"/a\r\nx: y",
        b"/a\x7f",
        b"/a#b",
        b"/\xc3\xa4",
        b"http://e/",
        b"/a\0",
    ],
)
def test_a_target_that_is_no_path_is_refused(target: bytes):
    with pytest.raises(RequestError, match="path"):
        rendered(target=target)


def test_a_target_may_be_as_long_as_the_limit():
    room = TARGET_LIMIT_BYTES - len(ADDRESS.prefix)
    assert rendered(target=b"/" + b"x" * (room - 1))
    with pytest.raises(RequestError, match="over 65536 bytes"):
        rendered(target=b"/" + b"x" * room)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"x", b"a\r\nb: c"),
        (b"x", b"a\n"),
        (b"x", b"a\r"),
        (b"x", b"\0"),
        (b"x y", b""),
        (b"", b""),
    ],
)
def test_a_header_that_would_break_its_line_is_refused(name: bytes, value: bytes):
    with pytest.raises(RequestError, match="passed on"):
        rendered((name, value))


@pytest.mark.parametrize("method", ["", "GET /", "G\r\n", "GÄT"])
def test_a_method_that_is_no_token_is_refused(method: str):
    with pytest.raises(RequestError, match="method"):
        rendered(method=method)


@pytest.mark.parametrize(
    "name", [b"host", b"content-length", b"transfer-encoding", b"connection", b"expect", b"upgrade"]
)
def test_headers_of_the_framing_are_nobody_elses(name: bytes):
    with pytest.raises(LocalProtocolError, match=name.decode()):
        rendered((name, b"1"))
