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


def test_the_values_of_a_header_are_those_of_all_its_lines_in_order():
    found = head(headers=[(b"a", b"1"), (b"b", b""), (b"a", b"2")])
    assert found.values(b"a") == [b"1", b"2"]
    assert found.values(b"b") == [b""]
    assert found.values(b"c") == []


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
