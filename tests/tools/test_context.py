"""The context keeps the run's secret out of logs."""

from tests.support.episodes import context_of
from tests.support.rollouts import SECRET


def test_no_secret_is_shown_when_a_context_is_printed():
    assert SECRET.decode() not in repr(context_of())
