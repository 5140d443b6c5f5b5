"""What a group is doing, in one word, as its board tells it.

Spec: docs/operations.md#probes
"""

from __future__ import annotations

import enum
from typing import Final

from sessions.lending.board import ROUTER_ROW, Phase
from sessions.lending.group import Group

STALE_BEAT_S: Final = 10.0  # a guess: ten missed beats; the arbiter acts after SESSIONS_TIMEOUT_S


class GroupState(enum.Enum):
    """The group in one word."""

    STARTING = "starting"
    OK = "ok"
    DEGRADED = "degraded"  # a shard is dead and the group goes on without it
    STALE = "stale"  # a shard's loop does not beat
    DRAINING = "draining"
    DYING = "dying"


def group_state(group: Group) -> GroupState:
    """What the group is doing, as its board tells it."""
    board = group.board
    if board.cause:
        return GroupState.DYING
    if board.draining:
        return GroupState.DRAINING
    rows = [board.read_row(board.row_of_shard(i)) for i in range(board.shards)]
    members = [*rows, board.read_row(ROUTER_ROW)] if group.settings.has_router else rows
    if any(row.phase < Phase.READY for row in members):
        return GroupState.STARTING
    alive = [row for row in rows if row.phase is not Phase.DEAD]
    if any(row.beat_age_s > STALE_BEAT_S for row in alive):
        return GroupState.STALE
    return GroupState.OK if len(alive) == len(rows) else GroupState.DEGRADED
