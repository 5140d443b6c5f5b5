"""Places: what they say without being told."""

from __future__ import annotations

from sessions.lending.place import Place


def test_a_place_reserves_nothing_and_may_be_referred_unless_it_says_so() -> None:
    place = Place(shard=3)
    assert (place.shard, place.key) == (3, b"")
    assert not place.is_newcomer
    assert not place.is_final
