"""Sessions that are over: what is remembered, for how long, and what keeps the claim."""

from __future__ import annotations

import pytest

from sessions.tools.claims import LocalClaims
from sessions.tools.session_endings import Ending, SessionEndings, released_error


class NotedClaims(LocalClaims):
    """Claims that note what is over."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[bytes] = []

    def end(self, key: bytes) -> None:
        self.ended.append(key)


async def test_what_ends_is_told_and_stays_claimed():
    claims = NotedClaims()
    await claims.claim(b"a")
    SessionEndings(claims, 2).add(b"a", Ending.CLOSED)
    assert (claims.ended, claims._held) == ([b"a"], {b"a"})


async def test_the_oldest_endings_are_forgotten_and_their_claims_given_up():
    claims = LocalClaims()
    endings = SessionEndings(claims, 2)
    for key in (b"a", b"b", b"c"):
        await claims.claim(key)
        endings.add(key, Ending.CLOSED)
    assert len(endings) == 2
    assert [endings.find(key) for key in (b"a", b"b", b"c")] == [
        None,
        Ending.CLOSED,
        Ending.CLOSED,
    ]
    assert claims._held == {b"b", b"c"}


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (Ending.CLOSED, "it was closed, not running on this server"),
        (Ending.EXPIRED, "it expired, not running on this server"),
        (Ending.NEVER_SEEDED, "not open: not running on this server"),
        (None, "not open: not running on this server"),
    ],
)
def test_a_call_is_told_how_its_session_ended(ending: Ending | None, why: str):
    endings = SessionEndings(LocalClaims(), 2)
    if ending is not None:
        endings.add(b"a", ending)
    assert why in endings.gone_error(b"a").message


def test_a_seed_is_told_that_its_id_was_used():
    assert "is over" in released_error("s1", Ending.EXPIRED).message
    assert "closed before it was seeded" in released_error("s1", Ending.NEVER_SEEDED).message
    assert released_error("s1", Ending.CLOSED).param == "resources_session_id"
