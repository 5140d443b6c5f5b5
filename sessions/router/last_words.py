"""The router's last words: what it does between the death of a shard and its own end.

The arbiter learns of the death at the same moment and writes its cause on the board; the router
waits a blink for that, ends the other shards, so that none of them can begin a reply any more,
reads every channel to its end, and judges each exchange by its state cell: a client that got no
byte is told what died, a reply in the middle is cut, a whole one is left alone (lending rules 18,
20, 21). A head of which only a part has come is answered too. Then it waits until its answers have
left, and ends.

Spec: docs/lending.md#death
"""

from __future__ import annotations

import contextlib
import logging
import select
import signal
import time
from collections.abc import Sequence
from typing import Final

from sessions.lending.front import Front
from sessions.lending.group import Group
from sessions.lending.waiting import wait_until
from sessions.router.dispatch import Dispatch, dying_error
from sessions.router.judgement import judge_for_halt
from sessions.router.shards import ShardLink

logger = logging.getLogger(__name__)

CAUSE_WAIT_S: Final = 0.05  # the arbiter needs about 5 ms (measured) to write the cause
FLUSH_WAIT_S: Final = 0.1  # with the above well inside the 250 ms that the arbiter waits
DEATH_WAIT_S: Final = 0.05  # for all together; a SIGKILL takes a few milliseconds
_POLL_S: Final = 0.002


async def speak_last_words(group: Group, front: Front, dispatch: Dispatch, dead: ShardLink) -> None:
    """Answer every exchange of a group in which a shard died.

    Args:
        group: Its board has the cause, or will have it in a moment.
        front: Whose connections are judged.
        dispatch: Answers new requests with the cause from now on.
        dead: The shard that died first.
    """
    dispatch.cause = f"shard {dead.index} (pid {dead.pid}) died"
    await wait_until(lambda: group.board.cause, limit_s=CAUSE_WAIT_S, poll_s=_POLL_S)
    dispatch.cause = group.board.cause or dispatch.cause
    logger.error("last words cause=%r in_flight=%d", dispatch.cause, dispatch.lent_count)
    kill_shards([link for link in dispatch.links.values() if link is not dead])
    for link in dispatch.links.values():
        link.channel.read_to_end()
    for link in dispatch.links.values():
        judge_for_halt(link, front, group.cells, lambda: dying_error(dispatch.cause))
    front.refuse_begun_heads(dying_error(dispatch.cause))
    await wait_until(lambda: not front.connections, limit_s=FLUSH_WAIT_S, poll_s=_POLL_S)


def kill_shards(links: Sequence[ShardLink]) -> None:
    """End live shards and wait for them: a moment, since nothing else is left to do."""
    for link in links:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(link.pidfd, signal.SIGKILL)
    end = time.monotonic() + DEATH_WAIT_S
    for link in links:
        poll = select.poll()
        poll.register(link.pidfd, select.POLLIN)
        poll.poll(max(0.0, end - time.monotonic()) * 1000)
