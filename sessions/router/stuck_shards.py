"""Shards that do not answer when a stop is overdue: the router ends them and answers for them.

A shard answers what it has by itself and gives it back. One whose loop is stuck cannot, and would
be killed by the arbiter with its clients unanswered. So the router, which knows each exchange,
does first what it does for a dead shard, with the words of the stop.

Spec: docs/architecture.md#life-and-death
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from sessions.lending.front import Front
from sessions.lending.group import Group, Life
from sessions.lending.overdue import wait_overdue
from sessions.router.dispatch import Dispatch
from sessions.router.judgement import judge_for_halt
from sessions.router.last_words import kill_shards

logger = logging.getLogger(__name__)

STUCK_S: Final = 0.7  # a shard answers within 0.05 s; half of what a quick end has


async def answer_for_stuck_shards(
    group: Group, life: Life, front: Front, dispatch: Dispatch
) -> None:
    """Wait until a stop is overdue and a moment longer, then end what shards still have.

    Args:
        group: Its settings say when that is.
        life: Tells of the stop.
        front: Whose connections are answered.
        dispatch: Knows what each shard has.
    """
    error = await wait_overdue(group.settings, life)
    await asyncio.sleep(STUCK_S)
    stuck = [link for link in dispatch.links.values() if link.loans]
    loop = asyncio.get_running_loop()
    for link in stuck:
        logger.error("shard does not answer shard=%d in_flight=%d", link.index, len(link.loans))
        loop.remove_reader(link.pidfd)  # its death means nothing more
    kill_shards(stuck)
    for link in stuck:
        link.channel.read_to_end()
        judge_for_halt(link, front, group.cells, lambda: error)
