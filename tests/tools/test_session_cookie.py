"""The cookie of a session: what it says, who can read it, and what is none."""

from __future__ import annotations

import pytest

from sessions.errors.seeded_sessions import BadSessionCookieError
from sessions.routing.readers import read_session_cookie
from sessions.tools.session_cookie import SessionCookie

SECRET = b"a secret of a test"
COOKIE = SessionCookie("Maze", SECRET)


def value_of(cookie: SessionCookie, session_id: str = "s1") -> bytes:
    """What a client would send."""
    pair, *attributes = cookie.header_of(session_id).split(b"; ")
    assert attributes == [b"path=/", b"httponly", b"samesite=lax"]
    return pair


@pytest.mark.parametrize("session_id", ["s1", "ünï / ;=\"', 1", "x" * 1024])
def test_a_cookie_is_read_by_its_environment_and_by_the_router(session_id: str):
    pair = value_of(COOKIE, session_id)
    assert COOKIE.session_in([(b"host", b"h"), (b"cookie", pair)]) == session_id
    assert read_session_cookie(pair.partition(b"=")[2]) == session_id
    assert pair.isascii()


def test_a_request_without_our_cookie_names_nothing():
    other = value_of(SessionCookie("Other", SECRET))
    for headers in ([], [(b"cookie", b"a=b; c")], [(b"cookie", other)], [(b"x", value_of(COOKIE))]):
        assert COOKIE.session_in(headers) is None


def test_of_several_cookies_the_last_of_our_name_counts():
    first, second = value_of(COOKIE, "s1"), value_of(COOKIE, "s2")
    assert COOKIE.session_in([(b"cookie", b"a=b; " + first + b";" + second)]) == "s2"
    assert COOKIE.session_in([(b"cookie", second), (b"cookie", first + b"; a=b")]) == "s1"
    quoted = first.replace(b"=", b'="', 1) + b'"'
    assert COOKIE.session_in([(b"cookie", quoted)]) == "s1"


def test_name_and_signature_are_of_the_run_and_the_class():
    other_run, other_class = SessionCookie("Maze", b"x"), SessionCookie("Chess", SECRET)
    assert len({COOKIE.name, other_run.name, other_class.name}) == 3
    assert SessionCookie("Maze", SECRET).name == COOKIE.name, "the same in all shards"
    for other in (other_run, other_class):
        forged = COOKIE.name.encode() + b"=" + value_of(other).partition(b"=")[2]
        with pytest.raises(BadSessionCookieError):
            COOKIE.session_in([(b"cookie", forged)])


def test_the_name_of_any_class_is_one_of_a_cookie():
    name = SessionCookie("Irrgärtchen", SECRET).name
    assert name.startswith("Irrg_rtchen-")
    assert name.isascii()


def test_what_reads_like_a_cookie_and_is_none_is_refused():
    pair = value_of(COOKIE)
    name, _, value = pair.partition(b"=")
    content, time, signature = value.split(b".")
    last = signature[-1:]
    alike = bytes([last[0] + 1]) if last not in b"9Zz" else bytes([last[0] - 1])
    texts = [
        b"",
        b"garbage",
        content,
        content + b"." + time,
        value[:-1],
        value + b"x",
        b"x" + value,
        content + b"." + time + b"." + signature[:-1] + alike,
        value.replace(time, b"AAAA"),
        value.replace(content, value_of(COOKIE, "s2").partition(b"=")[2].partition(b".")[0]),
    ]
    for text in texts:
        with pytest.raises(BadSessionCookieError):
            COOKIE.session_in([(b"cookie", name + b"=" + text)])
