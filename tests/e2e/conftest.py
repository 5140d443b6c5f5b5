"""Groups that several tests share, because none of them disturbs a group."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.group import RunningGroup, open_groups
from tests.support.topology import TOPOLOGIES, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A running group and its shape."""

    group: RunningGroup
    topology: Topology


@pytest.fixture(scope="module", params=TOPOLOGIES, ids=lambda topology: topology.name)
def shared(request: pytest.FixtureRequest) -> Iterator[Shared]:
    """A group of each topology with the `cases` application."""
    topology: Topology = request.param
    with open_groups() as groups:
        group = topology.start(groups, "tests.support.apps:cases")
        yield Shared(group=group, topology=topology)
