"""Regions: who may append where."""

from __future__ import annotations

import pytest

from sessions.errors.unseen import LocalProtocolError
from sessions.replay.regions import Regions


def test_writers_that_are_open_at_once_never_share_a_region():
    regions = Regions(100)
    assert [regions.take(0).start for _ in range(3)] == [0, 100, 200]


def test_a_writer_goes_on_where_a_blob_ended_if_nobody_else_does():
    regions = Regions(100)
    first = regions.take(None)
    first.tip, first.held_from = 40, None
    assert regions.take(40) is first
    assert first.held_from == 40
    assert regions.take(40) is not first


def test_a_writer_that_wants_another_place_gets_an_empty_region():
    regions = Regions(100)
    first = regions.take(None)
    first.tip, first.held_from = 40, None
    second = regions.take(30)
    second.held_from = None
    assert second.tip == 100
    assert regions.take(None) is second


def test_a_full_region_is_not_gone_on_with():
    regions = Regions(100)
    first = regions.take(None)
    first.tip, first.held_from = 100, None
    assert regions.take(100).start == 100
    assert first.room_bytes == 0


def test_a_region_is_found_by_any_of_its_offsets():
    regions = Regions(100)
    made = [regions.take(None) for _ in range(2)]
    assert [regions.at(99), regions.at(100)] == made
    with pytest.raises(LocalProtocolError):
        regions.at(200)
