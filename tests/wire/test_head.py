"""Heads: look-up of headers, and whether a body follows."""

import pytest

from sessions.wire.head import Framing, Head


def head(
    framing: Framing = Framing.NONE,
    length: int = 0,
    headers: list[tuple[bytes, bytes]] | None = None,
) -> Head:
    return Head(
        method=b"GET",
        target=b"/",
        path=b"/",
        http_version="1.1",
        headers=headers or [],
        size=18,
        framing=framing,
        content_length=length,
        keep_alive=True,
        expects_continue=False,
        upgrades=False,
    )


def test_header_gives_the_first_value_or_none():
    found = head(headers=[(b"a", b"1"), (b"b", b""), (b"a", b"2")])
    assert found.header(b"a") == b"1"
    assert found.header(b"b") == b""
    assert found.header(b"c") is None


@pytest.mark.parametrize(
    ("framing", "length", "has_body"),
    [
        (Framing.NONE, 0, False),
        (Framing.LENGTH, 0, False),
        (Framing.LENGTH, 1, True),
        (Framing.CHUNKED, 0, True),
    ],
)
def test_a_body_follows_when_the_framing_says_so(framing: Framing, length: int, has_body: bool):  # noqa: FBT001
    assert head(framing, length).has_body is has_body
