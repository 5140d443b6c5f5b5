"""Open files against connections."""

import os
import resource

import pytest

from sessions.chassis.descriptors import raise_descriptor_limit
from sessions.errors.unseen import SettingsError
from sessions.settings import Settings
from tests.support.stand_ins import status_of

_NEEDED = 100 + 96 + 2 * 2  # connections, reserve, two shards


def _with_limits(soft: int, hard: int) -> int:
    """0: accepted and raised to the hard limit; 1: refused by name; others: wrong."""

    def act() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        try:
            limit = raise_descriptor_limit(Settings(shards=2, max_connections=100))
        except SettingsError as error:
            os._exit(1 if str(error).startswith("SESSIONS_MAX_CONNECTIONS=100 does not") else 2)
        raised = resource.getrlimit(resource.RLIMIT_NOFILE)
        os._exit(0 if (limit, raised) == (hard, (hard, hard)) else 3)

    return status_of(act)


def test_the_soft_limit_is_raised_to_the_hard_one():
    assert _with_limits(64, 4000) == 0


def test_the_last_limit_that_holds_all_connections_is_accepted():
    assert _with_limits(64, _NEEDED) == 0


def test_one_descriptor_less_is_refused_by_the_name_of_the_setting():
    assert _with_limits(64, _NEEDED - 1) == 1


def test_the_refusal_says_what_would_fit():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with pytest.raises(SettingsError, match=f"set it to {limit - 98} or raise the limit"):
        raise_descriptor_limit(Settings(max_connections=limit))
