"""Roles by age."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.chassis.member import Member, Role, member_of
from sessions.lending.board import ROUTER_ROW, Board
from sessions.settings import RouterMode, Settings


def test_the_first_worker_is_the_router_when_there_are_many_shards():
    member = member_of(1, Settings(shards=3))
    assert (member.role, member.name, member.row) == (Role.ROUTER, "router", ROUTER_ROW)
    assert member.owns_listener


def test_the_workers_after_the_router_are_the_shards_in_order():
    members = [member_of(age, Settings(shards=3)) for age in (2, 3, 4)]
    assert [member.name for member in members] == ["shard 0", "shard 1", "shard 2"]
    assert not any(member.owns_listener for member in members)


def test_the_only_worker_is_a_lone_shard_that_owns_the_listener():
    member = member_of(1, Settings(shards=1))
    assert member == Member(role=Role.LONE_SHARD, index=0)
    assert (member.name, member.owns_listener) == ("shard 0", True)


def test_a_single_shard_stands_behind_a_router_when_one_is_asked_for():
    members = [member_of(age, Settings(shards=1, router=RouterMode.ALWAYS)) for age in (1, 2)]
    assert [member.role for member in members] == [Role.ROUTER, Role.SHARD]


@settings(derandomize=True, deadline=None)
@given(shards=st.integers(1, 256), router=st.sampled_from(RouterMode))
def test_every_worker_has_a_name_and_a_row_of_its_own(shards: int, router: RouterMode):
    group = Settings(shards=shards, router=router)
    members = [member_of(age, group) for age in range(1, group.worker_count + 1)]
    board = Board(shards)
    assert len({member.name for member in members}) == len(members)
    assert len({member.row for member in members}) == len(members)
    for member in members:
        if member.role is not Role.ROUTER:
            assert member.row == board.row_of_shard(member.index)
