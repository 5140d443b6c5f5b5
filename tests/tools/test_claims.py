"""A lone shard's claims do what any claims do."""

import pytest

from sessions.errors.episodes import DuplicateClaimError
from sessions.tools.claims import LocalClaims

KEY = b"k" * 16


async def test_a_second_claim_is_refused_while_the_first_is_held():
    claims = LocalClaims()
    await claims.claim(KEY)
    with pytest.raises(DuplicateClaimError):
        await claims.claim(KEY)
    with pytest.raises(DuplicateClaimError):
        await claims.claim(KEY)
    await claims.claim(b"other key 16 byt")


async def test_a_claim_can_be_taken_again_when_it_was_released():
    claims = LocalClaims()
    await claims.claim(KEY)
    claims.release(KEY)
    await claims.claim(KEY)


def test_releasing_what_nobody_holds_does_nothing():
    LocalClaims().release(KEY)
