"""The groups that are compared, running side by side on the simulated engine."""

from collections.abc import Iterator

import pytest

from tests.support.group import RunningGroup, open_groups
from tests.support.topology import LONE, ROUTED_FOUR, ROUTED_ONE

ENGINE = {"SESSIONS_ENGINE_URL": "sim:"}


@pytest.fixture(scope="module")
def lone() -> Iterator[RunningGroup]:
    with open_groups() as groups:
        yield LONE.start(groups, "", ENGINE)


@pytest.fixture(scope="module", params=[ROUTED_ONE, ROUTED_FOUR], ids=lambda each: each.name)
def routed(request: pytest.FixtureRequest) -> Iterator[RunningGroup]:
    with open_groups() as groups:
        yield request.param.start(groups, "", ENGINE)
