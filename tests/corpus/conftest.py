"""The two servers that must give the same answers: a lone shard, and four behind a router."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.support.apps import SPRUNG
from tests.support.group import RunningGroup, open_groups
from tests.support.topology import LONE, ROUTED_FOUR

BODY_LIMIT_BYTES = 1 << 20
LIMITS = {"SESSIONS_BODY_BYTES": str(BODY_LIMIT_BYTES)}
SHORT_TIMES = {
    "SESSIONS_HEAD_TIMEOUT_S": "1.5",
    "SESSIONS_BODY_TIMEOUT_S": "1.5",
    "SESSIONS_IDLE_TIMEOUT_S": "3",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two running groups of the `cases` application with the same settings."""

    lone: RunningGroup
    routed: RunningGroup

    @property
    def groups(self) -> tuple[RunningGroup, RunningGroup]:
        """Both, the lone shard first."""
        return self.lone, self.routed

    def sprung_traps(self) -> list[str]:
        """Log lines of requests that must never be run."""
        lines = [line for group in self.groups for line in group.log().splitlines()]
        return [line for line in lines if SPRUNG in line]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """With a small limit of bodies."""
    yield from _pair(LIMITS)


@pytest.fixture(scope="module")
def impatient_pair() -> Iterator[Pair]:
    """With short time-outs."""
    yield from _pair(LIMITS | SHORT_TIMES)


def _pair(env: dict[str, str]) -> Iterator[Pair]:
    app = "tests.support.apps:cases"
    with ExitStack() as stack:
        lone = LONE.start(stack.enter_context(open_groups()), app, env)
        routed = ROUTED_FOUR.start(stack.enter_context(open_groups()), app, env)
        found = Pair(lone=lone, routed=routed)
        yield found
        assert found.sprung_traps() == []
