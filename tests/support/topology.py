"""The topologies that must be indistinguishable to a client.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.group import Groups, RunningGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """How many shards, with a router or not."""

    name: str
    shards: int
    env: dict[str, str] = field(default_factory=dict)

    def start(self, groups: Groups, app: str, env: dict[str, str] | None = None) -> RunningGroup:
        """A group of this topology."""
        return groups.start(shards=self.shards, env=self.env | (env or {}), app=app)


LONE = Topology(name="lone", shards=1)
ROUTED_ONE = Topology(name="router+1", shards=1, env={"SESSIONS_ROUTER": "always"})
ROUTED_TWO = Topology(name="router+2", shards=2)
ROUTED_FOUR = Topology(name="router+4", shards=4)
ROUTED_SEVEN = Topology(name="router+7", shards=7)
ROUTED_SIXTEEN = Topology(name="router+16", shards=16)
TOPOLOGIES = (LONE, ROUTED_ONE, ROUTED_FOUR)
