"""The gunicorn worker of every member: role by age, one coroutine on uvloop.

The arbiter makes a `GroupWorker` before each fork; its constructor runs in the arbiter. In the
child, `init_process` takes the signals, names the process, arms the boot deadline, becomes the
configured user, binds its life to the arbiter's, drops the listener unless it owns it, and runs
its role until that returns. However it ends, it never unwinds into the arbiter's frames below it.

Nothing of gunicorn's own request handling is used.

Spec: docs/architecture.md#processes
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import time
from typing import TYPE_CHECKING, Final, NoReturn

import uvloop
from gunicorn import util
from gunicorn.workers.base import Worker
from setproctitle import setproctitle

from sessions.chassis.ending import end_process, leave_process
from sessions.chassis.life import MemberLife
from sessions.chassis.logs import name_process
from sessions.chassis.member import Role, member_of
from sessions.chassis.orphan import die_with_parent
from sessions.chassis.reason import SharedReason
from sessions.chassis.refusals import REFUSED_SIGNALS
from sessions.chassis.verdicts import ExitCode
from sessions.errors.unseen import SettingsError
from sessions.lending.board import Phase

if TYPE_CHECKING:
    import socket
    from queue import SimpleQueue
    from types import FrameType

    from gunicorn.app.base import BaseApplication
    from gunicorn.config import Config
    from gunicorn.glogging import Logger

    from sessions.chassis.roles import Roles
    from sessions.lending.group import Group

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
_STOPPED_SLACK_S: Final = 2.0  # the boot watchdog first: it can print where the boot hangs
# The router is ready when the last shard is, which was forked up to 0.1 s per shard later; so a
# hanging shard is named, and not the router that waits for it.
_ROUTER_SLACK_S: Final = 4.0
_ROUTER_SLACK_PER_SHARD_S: Final = 0.1
_logger: Final = logging.getLogger(__name__)


class GroupWorker(Worker):
    """One member of a group.

    Attributes:
        member: Which one.
        reason: Why it ended, as far as it knew; read by the arbiter.
        forked_s: `time.monotonic()` just before its fork.
    """

    def __init__(  # noqa: PLR0917 - gunicorn's own signature
        self,
        age: int,
        ppid: int,
        sockets: list[socket.socket],
        app: BaseApplication,
        timeout: int,
        cfg: Config,
        log: Logger,
        *,
        group: Group,
        roles: Roles,
        orders: SimpleQueue[int],
    ) -> None:
        """Called by the arbiter before the fork.

        Args:
            age: Tells the role.
            ppid: The arbiter.
            sockets: Gunicorn's wrappers of the public listeners.
            app: Not used.
            timeout: Not used.
            cfg: For the user to become.
            log: Reopened by SIGUSR1.
            group: Shared by all members.
            roles: The coroutine of each role.
            orders: The arbiter's queue of signals; what reached the child before it could set
                handlers of its own is in its copy.
        """
        super().__init__(age, ppid, sockets, app, timeout, cfg, log)
        self.member = member_of(age, group.settings)
        self.reason = SharedReason()
        self.forked_s = time.monotonic()
        self._group = group
        self._roles = roles
        self._orders = orders
        self._postpone_first_beat()

    def init_process(self) -> NoReturn:
        """Boot, run and end, in the child."""
        self._take_signals()
        name_process(self.member.name)
        setproctitle(f"sessile: {self.member.name}")
        life = MemberLife(self.member, self._group.board, self.reason, self.notify)
        faulthandler.enable()
        faulthandler.dump_traceback_later(self._boot_limit_s(), exit=True)
        try:
            util.set_owner_process(self.cfg.uid, self.cfg.gid, initgroups=self.cfg.initgroups)
            die_with_parent(self.ppid)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(life, self._take_listeners()))
            life.close()
        except BaseException as error:  # noqa: BLE001 - the top of a worker
            self._fall(life, error)
        leave_process(ExitCode.CLEAN)

    async def _serve(self, life: MemberLife, listeners: list[socket.socket]) -> None:
        match self.member.role:
            case Role.ROUTER:
                life.heed_signals()
                await self._roles.serve_router(self._group, listeners, life)
            case Role.SHARD:
                await self._roles.serve_shard(self._group, self.member.index, life)
            case Role.LONE_SHARD:
                await self._roles.serve_lone_shard(self._group, listeners, life)

    def _take_listeners(self) -> list[socket.socket]:
        """Plain sockets for who accepts; a shard holds none, or a dead router's would stay open."""
        if not self.member.owns_listener:
            for listener in self.sockets:
                listener.close()
            return []
        listeners: list[socket.socket] = [wrapper.sock for wrapper in self.sockets]  # type: ignore[attr-defined]
        for listener in listeners:
            listener.set_inheritable(False)
        return listeners

    def _take_signals(self) -> None:
        for number in (*STOP_SIGNALS, signal.SIGABRT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        for name in REFUSED_SIGNALS:
            signal.signal(signal.Signals[f"SIG{name}"], signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, self._reopen_logs)
        signal.siginterrupt(signal.SIGUSR1, False)  # noqa: FBT003
        while not self._orders.empty():
            if self._orders.get_nowait() in STOP_SIGNALS:
                end_process(ExitCode.CLEAN)

    def _boot_limit_s(self) -> float:
        settings = self._group.settings
        if self.member.role is not Role.ROUTER:
            return settings.boot_deadline_s
        slack_s = _ROUTER_SLACK_S + _ROUTER_SLACK_PER_SHARD_S * settings.shards
        return settings.boot_deadline_s + slack_s

    def _postpone_first_beat(self) -> None:
        """Let the arbiter's heartbeat time-out end just after the boot deadline.

        Gunicorn's file of beats begins with a wall-clock time, far in the future of the monotonic
        clock that it is compared with; a member that is stopped while booting would never be
        missed, and its own watchdog is stopped with it.
        """
        due_s = self.forked_s + self._boot_limit_s() + _STOPPED_SLACK_S
        beat_s = due_s - self._group.settings.timeout_s
        os.utime(self.tmp.fileno(), (beat_s, beat_s))

    def _reopen_logs(self, _number: int, _frame: FrameType | None) -> None:
        self.log.reopen_files()

    def _fall(self, life: MemberLife, error: BaseException) -> NoReturn:
        """End with the reason in shared memory; an error that is not the operator's is traced."""
        is_plain = isinstance(error, SystemExit | SettingsError)
        if not is_plain:
            _logger.error("%s cannot go on", self.member.name, exc_info=error)
        name = "" if isinstance(error, SettingsError) else type(error).__name__
        self.reason.write(": ".join(filter(None, (name, str(error)))))
        booting = life.phase < Phase.READY
        end_process(ExitCode.BOOT_FAILED if booting else ExitCode.WORKER_DIED)
