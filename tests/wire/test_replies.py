"""Replies of our own: order of headers, lengths, and when a body is left out."""

import json
import re
from email.utils import parsedate_to_datetime

import httptools
import pytest

from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.group import NotReadyError
from sessions.errors.protocol import BadHeadError, HeadTooLargeError, UpgradeRefusedError
from sessions.wire.refusals import refusal_body_of
from sessions.wire.replies import render_error, render_reply

DATE = r"date: (\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT)"


def lines_and_body(raw: bytes) -> tuple[list[str], bytes]:
    head, _, body = raw.partition(b"\r\n\r\n")
    return head.decode("latin-1").split("\r\n"), body


def test_writes_date_and_server_first_then_ours_then_length_and_close_last():
    raw = render_reply(200, [("content-type", "text/plain"), ("x-a", "é")], b"hello", close=True)
    lines, body = lines_and_body(raw)
    assert lines[0] == "HTTP/1.1 200 OK"
    assert re.fullmatch(DATE, lines[1])
    assert lines[2:] == [
        "server: sessile",
        "content-type: text/plain",
        "x-a: é",
        "content-length: 5",
        "connection: close",
    ]
    assert body == b"hello"


def test_names_an_upgrade_in_connection():
    error = UpgradeRefusedError("no")
    lines, _ = lines_and_body(render_error(error, close=True))
    assert lines[-1] == "connection: close, upgrade"
    assert "upgrade: HTTP/1.1" in lines
    assert lines_and_body(render_error(error, close=False))[0][-1] == "connection: upgrade"


def test_says_nothing_of_the_connection_when_it_is_kept():
    lines, body = lines_and_body(render_reply(200, [], b"", close=False))
    assert lines[2:] == ["server: sessile", "content-length: 0"]
    assert body == b""


def test_tells_the_length_and_sends_no_body_when_the_request_was_head():
    lines, body = lines_and_body(render_reply(200, [], b"hello", close=False, head_only=True))
    assert lines[-1] == "content-length: 5"
    assert body == b""


@pytest.mark.parametrize("status", [204, 304])
def test_sends_neither_length_nor_body_when_the_status_has_none(status: int):
    lines, body = lines_and_body(render_reply(status, [], b"ignored", close=False))
    assert lines[2:] == ["server: sessile"]
    assert body == b""


@pytest.mark.parametrize(
    ("status", "phrase"), [(200, "OK"), (410, "Gone"), (426, "Upgrade Required")]
)
def test_names_the_phrase_of_the_status(status: int, phrase: str):
    assert render_reply(status, [], b"", close=False).startswith(
        f"HTTP/1.1 {status} {phrase}\r\n".encode()
    )


def test_the_date_follows_the_clock(monkeypatch: pytest.MonkeyPatch):
    dates = []
    for now in (1_800_000_000.2, 1_800_000_000.9, 1_800_000_001.0):
        monkeypatch.setattr("sessions.wire.replies.time.time", lambda now=now: now)
        found = re.search(DATE, render_reply(200, [], b"", close=False).decode())
        assert found is not None
        dates.append(parsedate_to_datetime(found[1]).timestamp())
    assert dates == [1_800_000_000, 1_800_000_000, 1_800_000_001]


@pytest.mark.parametrize(
    "error", [BadHeadError("no"), HeadTooLargeError("big"), NotReadyError("é")]
)
def test_renders_an_error_in_the_one_shape(error: ClientVisibleError):
    lines, body = lines_and_body(render_error(error, close=True))
    assert lines[0].startswith(f"HTTP/1.1 {error.status} ")
    assert lines[3:-2] == [f"{name}: {value}" for name, value in error.headers]
    assert lines[-2:] == [f"content-length: {len(body)}", "connection: close"]
    assert json.loads(body) == {
        "error": {
            "message": error.message,
            "type": error.type,
            "param": None,
            "code": error.code,
        }
    }


def test_an_error_for_head_has_no_body():
    raw = render_error(BadHeadError("no"), close=False, head_only=True)
    assert lines_and_body(raw)[1] == b""


def test_a_client_reads_two_replies_in_a_row():
    statuses: list[int] = []

    class Protocol:
        def on_message_complete(self) -> None:
            statuses.append(parser.get_status_code())

    parser = httptools.HttpResponseParser(Protocol())
    parser.feed_data(
        render_reply(200, [], b"hello", close=False)
        + render_reply(204, [], b"", close=False)
        + render_error(BadHeadError("no"), close=True)
    )
    assert statuses == [200, 204, 400]


@pytest.mark.parametrize("path", [b"", b"/one", b"/mcp"])
def test_an_error_has_the_body_of_its_path(path: bytes):
    error = NotReadyError("later")
    _, body = lines_and_body(render_error(error, close=True, path=path))
    assert body == refusal_body_of(error, path)
    assert (b'"jsonrpc"' in body) is (path == b"/mcp")
