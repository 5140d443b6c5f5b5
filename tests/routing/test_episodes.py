"""Episodes: names that no other episode has."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.errors.client_visible import RequestError
from sessions.routing.episodes import EpisodeId

rollouts = st.text("ab1-a0", min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("rollout_id", "attempt", "key"),
    [
        ("r", 0, "r"),
        ("r", 1, "r-a1"),
        ("r", 12, "r-a12"),
        ("r-a0", 0, "r-a0"),
        ("r-a01", 0, "r-a01"),
        ("r-a", 3, "r-a-a3"),
        ("a1", 1, "a1-a1"),
        ("x" * 10_000, 1, "x" * 10_000 + "-a1"),
    ],
)
def test_the_name_is_the_rollout_with_the_retry_behind_it(rollout_id: str, attempt: int, key: str):
    assert EpisodeId(rollout_id=rollout_id, attempt=attempt).key == key


@pytest.mark.parametrize(
    ("rollout_id", "attempt", "param"),
    [
        ("", 0, "rollout_id"),
        ("r-a1", 0, "rollout_id"),
        ("r-a10", 2, "rollout_id"),
        ("-a1", 0, "rollout_id"),
        ("r", -1, "attempt"),
    ],
)
def test_what_could_be_another_episodes_name_is_refused(rollout_id: str, attempt: int, param: str):
    with pytest.raises(RequestError) as caught:
        EpisodeId(rollout_id=rollout_id, attempt=attempt)
    assert caught.value.param == param


@settings(derandomize=True, deadline=None, max_examples=300)
@given(rollouts, st.integers(0, 12), rollouts, st.integers(0, 12))
def test_two_episodes_never_share_a_name(first: str, one: int, second: str, other: int):
    try:
        a = EpisodeId(rollout_id=first, attempt=one)
        b = EpisodeId(rollout_id=second, attempt=other)
    except RequestError:
        return
    assert (a.key == b.key) == (a == b)
