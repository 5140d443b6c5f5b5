"""The keeper: the arbiter's side of a group, between stock gunicorn and our rules.

Gunicorn respawns workers, tells its hooks nothing of how a worker ended, and loses its way when a
hook halts it twice. The keeper replaces a few entries of the arbiter object:

* its signal handler, to know of a stop at once (and to make a second one quick);
* `reap_workers`, to look at how a member ended before gunicorn forgets it. The first end without
  a stop is the group's: the cause goes to the board, the router gets a moment for its last words,
  all others are killed, and `HaltServer` is raised, once;
* the handlers of signals that would resize or re-execute the group, which are refused.

During a stop gunicorn reaps by itself, and the keeper only notes who had not drained.

Spec: docs/architecture.md#life-and-death
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NoReturn

from gunicorn.errors import HaltServer
from setproctitle import setproctitle

from sessions.chassis.ending import end_process
from sessions.chassis.member import Role
from sessions.chassis.refusals import REFUSED_SIGNALS
from sessions.chassis.verdicts import Death, ExitCode, Verdict, judge
from sessions.chassis.worker import STOP_SIGNALS, GroupWorker
from sessions.lending.board import Phase

if TYPE_CHECKING:
    from types import FrameType

    from gunicorn.arbiter import Arbiter
    from gunicorn.workers.base import Worker

    from sessions.chassis.roles import Roles
    from sessions.chassis.rundir import RuntimeDir
    from sessions.lending.group import Group

LAST_WORDS_S: Final = 0.25  # lending rule 21
QUICK_S: Final = 2  # of a quick stop; gunicorn's own number for a second signal
_KILLED_S: Final = 1.0  # SIGKILL takes microseconds unless the kernel holds the process
_NO_SUCH_EXIT: Final = -1
_logger: Final = logging.getLogger(__name__)


class Keeper:
    """Keeps one group; see the module docstring."""

    def __init__(
        self, server: Arbiter, group: Group, roles: Roles, runtime_dir: RuntimeDir
    ) -> None:
        self._server = server
        self._group = group
        self._runtime_dir = runtime_dir
        self._stock_reap: Callable[[], None] = server.reap_workers
        self._worker_class = partial(GroupWorker, group=group, roles=roles, orders=server.SIG_QUEUE)
        self._stops = 0
        self._halt_code = ExitCode.CLEAN
        self._has_cut = False
        self._statuses: dict[int, int] = {}

    def install(self) -> None:
        """Take the place of gunicorn's own entries and hooks."""
        vars(self._server).update(
            worker_class=self._worker_class,
            signal=self._on_signal,
            signal_chld=self._on_child_signal,
            reap_workers=self._reap,
            handle_term=self._handle_term,
            handle_int=self._stop_quickly,
            handle_quit=self._stop_quickly,
            # exit statuses 3 and 4 are deaths like any other
            WORKER_BOOT_ERROR=_NO_SUCH_EXIT,
            APP_LOAD_ERROR=_NO_SUCH_EXIT,
        )
        for name, why in REFUSED_SIGNALS.items():
            refuse = partial(_logger.error, "SIG%s refused: %s", name, why)
            vars(self._server)[f"handle_{name.lower()}"] = refuse
        for hook in (self.pre_fork, self.child_exit, self.on_exit):
            self._server.cfg.set(hook.__name__, hook)

    # Gunicorn's hooks

    def pre_fork(self, _server: Arbiter, worker: Worker) -> None:
        """Guard against a respawn, whatever led to it.

        Raises:
            HaltServer: This worker would be one too many.
            StopIteration: Likewise, but a stop is under way: gunicorn's word for it.
        """
        setproctitle("sessile: arbiter")
        if worker.age <= self._group.settings.worker_count:
            return
        if self._stops:
            raise StopIteration
        self._halt("a member is gone and none is respawned", ExitCode.WORKER_DIED)

    def child_exit(self, _server: Arbiter, worker: GroupWorker) -> None:
        """Gunicorn has reaped a member: during a stop, or before the keeper saw it.

        Raises:
            HaltServer: No stop is under way.
        """
        self._on_end(worker, self._statuses.pop(int(worker.pid), None))

    def on_exit(self, _server: Arbiter) -> None:
        """The last act: nothing of the group is left behind, and the exit code says how it went.

        Raises:
            SystemExit: A member was cut.
        """
        left = self._members()
        for worker, status in self._kill(left):
            self._on_end(worker, status)
        self._runtime_dir.remove()
        if self._halt_code:
            logging.shutdown()
            end_process(self._halt_code)
        if self._has_cut:
            sys.exit(ExitCode.NOT_DRAINED)

    # Signals

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Runs at any moment, so it only notes; also in a child until that has its own handlers."""
        if number in STOP_SIGNALS and os.getpid() == self._server.pid:
            self._stops += 1
            self._group.board.set_draining()
            if self._stops > 1:
                number = signal.SIGINT  # the one that hurries gunicorn's graceful stop
        self._server.SIG_QUEUE.put_nowait(number)

    def _on_child_signal(self, number: int, _frame: FrameType | None) -> None:
        """A stop looks by itself; there, each would only delay a second stop signal."""
        if not self._stops:
            self._server.SIG_QUEUE.put_nowait(number)

    def _handle_term(self) -> NoReturn:
        self._note_stop()
        if self._stops > 1:
            self._stop_quickly()
        raise StopIteration

    def _stop_quickly(self) -> NoReturn:
        self._note_stop()
        self._server.cfg.set("graceful_timeout", QUICK_S)
        self._server.stop(graceful=False)
        raise StopIteration

    def _note_stop(self) -> None:
        """A stop that came before the keeper was there is noted when it is handled."""
        self._stops = max(self._stops, 1)
        self._group.board.set_draining()

    # Deaths

    def _reap(self) -> None:
        ended = []
        for worker in self._members():
            status = _peek(int(worker.pid))
            if status is not None:
                self._statuses[int(worker.pid)] = status
                ended.append((_gave_up(worker, status), worker, status))
        if ended and not self._stops:
            _, worker, status = min(ended, key=itemgetter(0))
            self._on_end(worker, status)
        self._stock_reap()

    def _on_end(self, worker: GroupWorker, status: int | None) -> None:
        if self._halt_code or self._phase(worker) is Phase.DEAD:
            return  # it is one of those that were killed, or buried already
        verdict = self._verdict(worker, status)
        if not self._stops:
            if self._may_go_on(worker):
                self._bury(worker, verdict)
                return
            self._fall(worker, verdict)
        if verdict.code is ExitCode.NOT_DRAINED:
            self._has_cut = True
            _logger.error("did not drain: %s", verdict.sentence)

    def _may_go_on(self, dead: GroupWorker) -> bool:
        """Whether the policy lets the group go on: a shard died, and another one serves.

        Not before the group was whole: the router serves from then on, and goes by the same.
        """
        if not self._group.goes_on:
            return False
        others = [worker for worker in self._members() if worker is not dead]
        return (
            dead.member.role is Role.SHARD
            and self._serves(dead)
            and any(w.member.role is Role.ROUTER and self._serves(w) for w in others)
            and any(w.member.role is Role.SHARD and self._serves(w) for w in others)
        )

    def _bury(self, dead: GroupWorker, verdict: Verdict) -> None:
        """One shard less, and none in its place: gunicorn must not wish for another."""
        self._group.board.set_phase(dead.member.row, Phase.DEAD, int(dead.pid))
        self._server.num_workers -= 1
        _logger.error("%s; the group goes on without it", verdict.sentence)

    def _fall(self, dead: GroupWorker, verdict: Verdict) -> NoReturn:
        """The group goes down because of one death."""
        self._group.board.set_cause(verdict.sentence)
        _logger.critical(
            "%s; the group goes down exit_code=%d", verdict.sentence, verdict.code.value
        )
        others = [worker for worker in self._members() if worker is not dead]
        routers = [w for w in others if w.member.role is Role.ROUTER and self._serves(w)]
        _wait_ends([int(router.pid) for router in routers], LAST_WORDS_S)
        self._halt(verdict.sentence, verdict.code)

    def _halt(self, reason: str, code: ExitCode) -> NoReturn:
        self._halt_code = code
        self._kill(self._members())
        raise HaltServer(reason, int(code))

    def _kill(self, workers: list[GroupWorker]) -> list[tuple[GroupWorker, int]]:
        """Kill and reap; gunicorn would write a line of its own for each."""
        for worker in workers:
            os.kill(int(worker.pid), signal.SIGKILL)  # ours and not reaped: the pid is no other's
        _wait_ends([int(worker.pid) for worker in workers], _KILLED_S)
        ended = []
        for worker in workers:
            pid, status = os.waitpid(int(worker.pid), os.WNOHANG)
            if pid:
                del self._server.WORKERS[pid]
                worker.tmp.close()
                ended.append((worker, os.waitstatus_to_exitcode(status)))
        return ended

    def _verdict(self, worker: GroupWorker, status: int | None) -> Verdict:
        settings = self._group.settings
        phase = self._phase(worker)
        age_s = time.monotonic() - worker.forked_s
        limit_s = settings.timeout_s if phase >= Phase.READY else settings.boot_deadline_s
        has_overrun = worker.aborted if phase >= Phase.READY else age_s >= limit_s
        return judge(
            Death(
                member=worker.member.name,
                pid=int(worker.pid),
                phase=phase,
                status=status,
                draining=bool(self._stops),
                overrun_s=limit_s if has_overrun else 0.0,
                reason=worker.reason.text,
            )
        )

    def _serves(self, worker: GroupWorker) -> bool:
        return Phase.READY <= self._phase(worker) < Phase.DEAD

    def _phase(self, worker: GroupWorker) -> Phase:
        return self._group.board.read_row(worker.member.row).phase

    def _members(self) -> list[GroupWorker]:
        workers: Iterable[Worker] = self._server.WORKERS.values()
        return [worker for worker in workers if isinstance(worker, GroupWorker)]


def _gave_up(worker: GroupWorker, status: int) -> bool:
    """Whether it ended because another member did: then the other one is the cause."""
    return status == ExitCode.WORKER_DIED and not worker.reason.text


def _peek(pid: int) -> int | None:
    """How a child ended, without reaping it; None while it runs."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _wait_ends(pids: list[int], limit_s: float) -> None:
    """Wait until all children have ended, or the limit is over."""
    with contextlib.ExitStack() as open_fds:
        poll = select.poll()
        waiting = set()
        for pid in pids:
            pidfd = os.pidfd_open(pid)
            open_fds.callback(os.close, pidfd)
            poll.register(pidfd, select.POLLIN)
            waiting.add(pidfd)
        end = time.monotonic() + limit_s
        while waiting and (left_s := end - time.monotonic()) > 0:
            for pidfd, _ in poll.poll(left_s * 1000):
                poll.unregister(pidfd)
                waiting.discard(pidfd)
