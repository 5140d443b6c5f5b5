"""The life of a member: what its role tells the arbiter, and what a signal tells the role.

`MemberLife` is the `Life` that a role is given. It writes the member's phase on the board, which
is all that the arbiter judges an end by. Until the member is ready, a stop ends it on the spot:
it holds no request, and its import may be stuck. From then on SIGTERM is a request to the role.
SIGINT and SIGQUIT end the process at once if nothing is in flight; else the role has a moment to
answer that, and a shard waits that long for its router, which answers for all. The router answers
clients while the group boots, so it is asked from the start.

A shard that is told to stop while the group is not was signalled by mistake. It cannot know at
once, because a supervisor may signal every process in any order; so it asks the board for a while.

Spec: docs/architecture.md#life-and-death
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from sessions.chassis.ending import end_process
from sessions.chassis.verdicts import ExitCode
from sessions.lending.board import Phase

if TYPE_CHECKING:
    from types import FrameType

    from sessions.chassis.member import Member
    from sessions.chassis.reason import SharedReason
    from sessions.lending.board import Board

ALONE_S: Final = 2.0  # longer than a supervisor takes to signal all processes; a guess
QUICK_END_S: Final = 1.5  # of a quick end with exchanges in flight; the arbiter kills after 2 s
_ASK_S: Final = 0.02
_logger: Final = logging.getLogger(__name__)


class MemberLife:
    """One member's life, from its fork to its end.

    Attributes:
        phase: Where it stands, as on the board.
        stop_requested: Set when the role must end gracefully.
        hurry_requested: Set when it must end at once, but may answer what is in flight.
    """

    def __init__(
        self, member: Member, board: Board, reason: SharedReason, notify: Callable[[], None]
    ) -> None:
        """Begin in phase BOOTING.

        Args:
            member: Whose life this is.
            board: Where its phase is written.
            reason: Where the reason of its end is left.
            notify: Tells the arbiter that the loop turns.
        """
        self.phase = Phase.BOOTING
        self.stop_requested = asyncio.Event()
        self.hurry_requested = asyncio.Event()
        self._member = member
        self._board = board
        self._reason = reason
        self._notify = notify
        self._is_idle: Callable[[], bool] = lambda: False
        self._is_hurried = False
        self._was_idle = False
        self._enter(Phase.BOOTING)

    def beat(self, *, sessions: int = 0, requests: int = 0) -> None:
        """Publish the counters, and say that the loop turns.

        Before READY the arbiter is not told: then the boot deadline rules, not the heartbeat.
        """
        self._board.beat(self._member.row, sessions=sessions, requests=requests)
        if self.phase is not Phase.BOOTING:
            self._notify()

    def on_ready(self) -> None:
        """The role can serve: the boot deadline ends, the heartbeat begins."""
        faulthandler.cancel_dump_traceback_later()
        if self.phase is Phase.BOOTING:
            self._enter(Phase.READY)
        self._notify()
        self.heed_signals()
        _logger.info("%s ready pid=%s", self._member.name, os.getpid())

    def on_drained(self) -> None:
        """Nothing is in flight any more: from here on the end is clean."""
        self._enter(Phase.DRAINED)

    def watch_idle(self, is_idle: Callable[[], bool]) -> None:
        """Let a quick end ask whether nothing is in flight; without it, it counts as cut.

        Args:
            is_idle: Called at any moment between two steps of the loop; only reads.
        """
        self._is_idle = is_idle

    def end_cut(self, reason: str) -> NoReturn:
        """End at once, not drained; the arbiter logs the reason."""
        self._reason.write(reason)
        end_process(ExitCode.CLEAN)

    def fail_boot(self, reason: str) -> NoReturn:
        """End at once; the arbiter logs the reason."""
        code = ExitCode.BOOT_FAILED if self.phase < Phase.READY else ExitCode.WORKER_DIED
        self._reason.write(reason)
        end_process(code)

    def heed_signals(self) -> None:
        """Turn SIGTERM into a request and SIGINT, SIGQUIT into a quick end, from now on.

        Must be called inside the running loop; again does no harm.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._on_term)
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGALRM):
            signal.signal(number, partial(self._end_quickly, loop))

    def close(self) -> None:
        """The role has returned.

        Raises:
            RuntimeError: Nobody had asked it to.
        """
        if not self.stop_requested.is_set():
            raise RuntimeError(f"{self._member.name} ended although nobody asked it to")
        if self._is_idle():
            self.on_drained()

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._board.set_phase(self._member.row, phase, os.getpid())

    def _on_term(self) -> None:
        if self._member.owns_listener:
            self._board.set_draining()
        self._ask_whether_alone(asyncio.get_running_loop().time() + ALONE_S)

    def _ask_whether_alone(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        if self._board.draining:
            if self.phase is Phase.READY:
                self._enter(Phase.DRAINING)
            self.stop_requested.set()
        elif loop.time() < until:
            loop.call_later(_ASK_S, self._ask_whether_alone, until)
        else:
            self._reason.write("SIGTERM reached it alone, and a group cannot lose a shard")
            end_process(ExitCode.WORKER_DIED)

    def _end_quickly(
        self, loop: asyncio.AbstractEventLoop, number: int, _frame: FrameType | None
    ) -> None:
        """Runs at any moment, also when the loop is stuck."""
        is_first, self._is_hurried = not self._is_hurried, True
        is_idle = self.phase is not Phase.BOOTING and self._is_idle()
        if is_first:
            self._was_idle = is_idle  # later it may be idle because it has cut
        is_over = number == signal.SIGALRM or (self._was_idle and self._member.owns_listener)
        if Phase.READY <= self.phase < Phase.DRAINED and not is_over and not loop.is_closed():
            if is_first:
                signal.setitimer(signal.ITIMER_REAL, QUICK_END_S)
                loop.call_soon_threadsafe(self._hurry)
            return
        if is_idle and self._was_idle:
            self._enter(Phase.DRAINED)
            if self._member.owns_listener:  # Ctrl-C reaches all: the arbiter may hear of it last
                self._board.set_draining()
        end_process(ExitCode.CLEAN)

    def _hurry(self) -> None:
        self.stop_requested.set()
        self.hurry_requested.set()
