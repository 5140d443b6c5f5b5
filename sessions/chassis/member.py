"""Members of a group: which role the worker of an age plays, and what it is called.

Gunicorn counts workers by age: the first is 1 and no age is given twice. Since no worker is ever
respawned, the age alone tells the role, and nothing has to be agreed on after the forks.

Spec: docs/architecture.md#processes
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from sessions.lending.board import ROUTER_ROW
from sessions.settings import Settings


class Role(enum.Enum):
    """What a worker does."""

    ROUTER = enum.auto()
    SHARD = enum.auto()
    LONE_SHARD = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One worker of a group.

    Attributes:
        role: What it does.
        index: The shard's index; 0 for the router.
    """

    role: Role
    index: int = 0

    @property
    def name(self) -> str:
        """As in logs, in titles and in the ready file: `router` or `shard 3`."""
        return "router" if self.role is Role.ROUTER else f"shard {self.index}"

    @property
    def row(self) -> int:
        """Its row on the board."""
        return ROUTER_ROW if self.role is Role.ROUTER else self.index + 1

    @property
    def owns_listener(self) -> bool:
        """Whether it accepts on the public listener."""
        return self.role is not Role.SHARD


def member_of(age: int, settings: Settings) -> Member:
    """The member that the worker of this age is.

    Args:
        age: Gunicorn's worker age, from 1.
        settings: They say whether there is a router.
    """
    if not settings.has_router:
        return Member(role=Role.LONE_SHARD, index=age - 1)
    if age == 1:
        return Member(role=Role.ROUTER)
    return Member(role=Role.SHARD, index=age - 2)
