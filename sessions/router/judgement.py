"""What becomes of the exchanges of a dead shard.

Its channel is read to the end first, so that what it gave back counts. Then each exchange is judged
by its state cell (lending rules 16, 18, 20): a client that got no byte of a reply gets an answer, a
reply in the middle is cut, a whole one is left alone. A loan that never left the router was
executed by nobody and may be lent to another shard, unless it names a session.

Spec: docs/lending.md#death
"""

from __future__ import annotations

from collections.abc import Callable

from sessions.errors.client_visible import ClientVisibleError
from sessions.lending.cells import Cells
from sessions.lending.connection import Connection
from sessions.lending.front import Front
from sessions.lending.messages import Kind, request_in
from sessions.lending.slots import SlotEvent
from sessions.router.dispatch import Dispatch, died_error, gone_error
from sessions.router.shards import Loan, ShardLink
from sessions.wire.head import Head


def judge_for_halt(
    link: ShardLink, front: Front, cells: Cells, error_of: Callable[[], ClientVisibleError]
) -> None:
    """Judge the exchanges of one dead shard of a group that goes down.

    Args:
        link: Its channel was read to the end.
        front: Whose connections are judged.
        cells: Of the group.
        error_of: Makes the answer for those that got no byte.
    """
    for connection, loan, event in _judged(link, front, cells):
        if event is SlotEvent.DIED_AWAITING and loan is not None:
            connection.answer_dead(error_of(), loan.head)
        elif event is SlotEvent.DIED_REPLYING:
            connection.cut()
        elif event is SlotEvent.DIED_COMPLETE:
            connection.end()
    link.loans.clear()


def judge_and_go_on(link: ShardLink, front: Front, cells: Cells, dispatch: Dispatch) -> None:
    """Judge the exchanges of a dead shard; all others go on.

    Args:
        link: Its channel was read to the end; buried here.
        front: Whose connections are judged.
        cells: Of the group.
        dispatch: Lends what may be lent again.
    """
    undelivered = {
        m.slot: (m.generation, request_in(m))
        for m in link.channel.undelivered()
        if m.kind == Kind.LEND  # the numbers of other messages mean other things
    }
    judged = _judged(link, front, cells)
    link.loans.clear()
    dispatch.bury(link)
    for connection, loan, event in judged:
        if event is SlotEvent.DIED_REPLYING:
            connection.cut()
        elif event is SlotEvent.DIED_COMPLETE:
            connection.go_on(b"")
        elif loan is not None:
            generation, payload = undelivered.get(connection.slot.number, (0, b""))
            if generation == connection.slot.generation:
                connection.go_on(payload)
            else:
                connection.answer_dead(_error_for(link, front, loan.head), loan.head)


def _judged(
    link: ShardLink, front: Front, cells: Cells
) -> list[tuple[Connection, Loan | None, SlotEvent]]:
    found = []
    for connection in list(front.connections):
        slot = connection.slot
        event = slot.judge_death(link.index, cells.read(slot.number, slot.generation))
        if event is not None:
            found.append((connection, link.loans.get(slot.number), event))
    return found


def _error_for(link: ShardLink, front: Front, head: Head) -> ClientVisibleError:
    named = front.name_in(head)
    return died_error(link) if named is None else gone_error(link, named.kind.name)
