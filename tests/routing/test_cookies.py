"""Cookies: the same value as Starlette reads, whatever the lines hold."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import HTTPConnection

from sessions.routing.cookies import cookie_in


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ([], None),
        ([b""], None),
        ([b"a=1"], "1"),
        ([b"b=2; a=1; c=3"], "1"),
        ([b"b=2", b"a=1", b"c=3"], "1"),
        ([b"a=1; a=2"], "2"),
        ([b"a=1", b"a=2"], "2"),
        ([b"a=1", b"b=2"], "1"),
        ([b" a = 1 ;"], "1"),
        ([b"a=1=2"], "1=2"),
        ([b"a="], ""),
        ([b"a=1; a"], "1"),
        ([b"A=1"], None),
        ([b'a="1"'], "1"),
        ([b'a="'], '"'),
        ([b'a="1'], '"1'),
        ([b'a="\\101\\""'], 'A"'),
        ([b"a=\xe9"], "\xe9"),
        ([b'a="\\377\\777"'], "\xff777"),  # so a value is always of bytes
    ],
)
def test_a_cookie_is_found_in_any_line_and_the_last_counts(lines: list[bytes], value: str | None):
    assert cookie_in(lines, "a") == value


@settings(derandomize=True, deadline=None, max_examples=400)
@given(
    st.lists(
        st.text('a=;" \\1b\xa0\t').map(lambda text: text.encode("latin-1")), min_size=0, max_size=4
    )
)
def test_an_application_sees_the_same(lines: list[bytes]):
    headers = [(b"cookie", line) for line in lines]
    seen = HTTPConnection({"type": "http", "headers": headers}).cookies
    assert cookie_in(lines, "a") == seen.get("a")
