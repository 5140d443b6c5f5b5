"""Real groups for tests: gunicorn started as an operator starts it, watched by pid, left by none.

`start_group` starts one and waits for its ready file. `open_groups` is the body of a fixture: it
hands out groups, stops what a test left running and fails when a process or a socket file stays.
Members are held by pidfd, so a signal never hits a stranger that got the same pid.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.processes import listening_address, session_members, wait_exits
from tests.support.waiting import wait_until

ROOT: Final = Path(__file__).parents[2]
CONF: Final = ROOT / "gunicorn_conf.py"
READY_DEADLINE_S: Final = 30.0  # far over the 5 s goal: cores are shared with other work
STOP_DEADLINE_S: Final = 45.0  # over the default graceful limit of 30 s
_KILL_DEADLINE_S: Final = 5.0
_POLL_S: Final = 0.01
_OURS: Final = ("SESSIONS_", "GUNICORN_", "WEB_CONCURRENCY")


class GroupError(AssertionError):
    """A group that did not do what the harness waits for; the message ends with its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """The ready file."""

    address: str
    pids: dict[str, int]


class RunningGroup:
    """One group started by a test; see `start_group`."""

    def __init__(self, process: subprocess.Popen[bytes], runtime_dir: Path, log: Path) -> None:
        self.runtime_dir = runtime_dir
        self.pids: dict[str, int] = {"arbiter": process.pid}
        self.signalled: set[tuple[str, signal.Signals]] = set()
        self._process = process
        self._log = log
        self._pidfds = {"arbiter": os.pidfd_open(process.pid)}
        self._address: tuple[str, int] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the public listener; known once the group is ready or listening."""
        if self._address is None:
            raise GroupError("the group has no address yet")
        return self._address

    @property
    def url(self) -> str:
        """The public address as a URL without a trailing slash."""
        host, port = self.address
        return f"http://{host}:{port}"

    def log(self) -> str:
        """Everything that the group wrote to stdout and stderr so far."""
        return self._log.read_text(errors="replace")

    def wait_ready(self, deadline_s: float = READY_DEADLINE_S) -> None:
        """Wait for the ready file of this very arbiter, then know address and pids.

        Raises:
            GroupError: The arbiter died first, or the deadline passed.
        """
        end = time.monotonic() + deadline_s
        while (ready := self._read_ready()) is None:
            if wait_exits([self._pidfds["arbiter"]], _POLL_S):
                raise self._failed(f"died before it was ready, exit code {self._process.wait()}")
            if time.monotonic() >= end:
                raise self._failed(f"was not ready within {deadline_s:g} s")
        host, _, port = ready.address.rpartition(":")
        self._address = (host.strip("[]"), int(port))
        self.pids = ready.pids
        for member, pid in self.pids.items():
            if member != "arbiter":
                self._pidfds[member] = os.pidfd_open(pid)

    def wait_listening(self, deadline_s: float = READY_DEADLINE_S) -> None:
        """Wait until the arbiter holds the public listener, ready or not; then know the address.

        Raises:
            GroupError: The arbiter died first.
            DeadlineError: The deadline passed.
        """

        def listens() -> bool:
            if self._process.poll() is not None:
                raise self._failed(f"died before it listened, exit code {self._process.wait()}")
            self._address = listening_address(self._process.pid)
            return self._address is not None

        wait_until(listens, "the arbiter listens", deadline_s)

    def signal(self, member: str, number: signal.Signals) -> None:
        """Send a signal to a member, named as in the ready file: "arbiter", "router", "shard 0".

        Raises:
            ProcessLookupError: It has ended.
        """
        self.signalled.add((member, number))
        signal.pidfd_send_signal(self._pidfds[member], number)

    def wait_exit(self, deadline_s: float = STOP_DEADLINE_S) -> int:
        """Wait for the arbiter's end.

        Returns:
            Its exit code; minus the number of a signal that ended it.

        Raises:
            GroupError: It runs on.
        """
        if not wait_exits([self._pidfds["arbiter"]], deadline_s):
            raise self._failed(f"did not end within {deadline_s:g} s")
        return self._process.wait()

    def wait_gone(self, deadline_s: float = STOP_DEADLINE_S) -> float:
        """Wait until no process of the group is left, members and any child of theirs.

        Returns:
            Seconds waited.

        Raises:
            GroupError: One is left; the message has its pid.
        """
        start = time.monotonic()
        everyone = wait_exits(self._pidfds.values(), deadline_s)
        while not everyone or session_members(self._process.pid):
            if time.monotonic() - start >= deadline_s:
                left = sorted(session_members(self._process.pid))
                raise self._failed(f"left processes {left} after {deadline_s:g} s")
            time.sleep(_POLL_S)
        self._process.wait()
        return time.monotonic() - start

    def terminate(self, deadline_s: float = STOP_DEADLINE_S) -> int:
        """Stop the group with SIGTERM and wait until no process is left.

        Returns:
            The arbiter's exit code.

        Raises:
            GroupError: A process is left.
        """
        with contextlib.suppress(ProcessLookupError):
            self.signal("arbiter", signal.SIGTERM)
        code = self.wait_exit(deadline_s)
        self.wait_gone(_KILL_DEADLINE_S)
        return code

    def socket_files(self) -> list[Path]:
        """Unix sockets that stand in the runtime folder."""
        if not self.runtime_dir.is_dir():
            return []
        return sorted(path for path in self.runtime_dir.iterdir() if path.is_socket())

    def close(self) -> list[str]:
        """Stop what still runs, by force if needed, and free the harness's descriptors.

        Returns:
            What was wrong: a group nobody signalled that did not stop cleanly, processes left
            after the arbiter's end, socket files left. Empty when all is well.
        """
        wrong = []
        if self._process.poll() is None:
            wrong += self._stop()
        left = self._left()
        if left:
            wrong.append(f"processes left: {left}")
            self._kill(left)
        self._process.wait()
        killed = ("arbiter", signal.SIGKILL) in self.signalled  # then socket files may stay
        if not killed and self.socket_files():
            wrong.append(f"socket files left: {[path.name for path in self.socket_files()]}")
        for pidfd in self._pidfds.values():
            os.close(pidfd)
        return wrong

    def _left(self) -> list[int]:
        """Members alive a moment after the arbiter's end; the orphan guard has 1 s."""
        with contextlib.suppress(GroupError):
            if self._process.poll() is not None:
                self.wait_gone(1.0)
        return sorted(session_members(self._process.pid))

    def _stop(self) -> list[str]:
        undisturbed = not self.signalled
        for member, number in list(self.signalled):
            if number is signal.SIGSTOP:
                with contextlib.suppress(ProcessLookupError):
                    self.signal(member, signal.SIGCONT)
        try:
            code = self.terminate()
        except GroupError as error:
            return [str(error).partition("\n")[0]]
        return [f"exit code {code} after SIGTERM"] if undisturbed and code != 0 else []

    def _kill(self, pids: Sequence[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(GroupError):
            self.wait_gone(_KILL_DEADLINE_S)

    def _read_ready(self) -> _Ready | None:
        try:
            found = json.loads((self.runtime_dir / "ready.json").read_bytes())
        except FileNotFoundError:
            return None
        ready = _Ready(address=found["address"], pids=found["pids"])
        return ready if ready.pids["arbiter"] == self._process.pid else None

    def _failed(self, what: str) -> GroupError:
        return GroupError(f"the group {what}; its log:\n{self.log()}")


def start_group(
    *,
    runtime_dir: Path,
    shards: int = 1,
    env: Mapping[str, str] | None = None,
    app: str = "",
    conf: Path = CONF,
    args: Sequence[str] = (),
    descriptor_limit: int | None = None,
    wait_ready: bool = True,
) -> RunningGroup:
    """Start a group as a real process in a POSIX session of its own.

    Args:
        runtime_dir: Short path of the group's runtime folder; the log stands beside it.
        shards: SESSIONS_SHARDS.
        env: More variables; they win over those that the other arguments set.
        app: SESSIONS_APP; empty leaves it unset.
        conf: The gunicorn configuration file.
        args: More arguments for gunicorn.
        descriptor_limit: RLIMIT_NOFILE, soft and hard; None leaves it.
        wait_ready: Whether to return only when the whole group is ready.

    Returns:
        The group; its owner must call `close`.

    Raises:
        GroupError: It died before it was ready or was not ready in time; nothing is left of it.
    """
    command = [sys.executable, "-m", "gunicorn", "-c", str(conf), *args]
    if descriptor_limit is not None:  # the shell becomes gunicorn, so the pid stays
        command = ["/bin/sh", "-c", f'ulimit -n {descriptor_limit}; exec "$@"', "sh", *command]
    log = log_of(runtime_dir)
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=_environment(runtime_dir, shards, app) | dict(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    group = RunningGroup(process, runtime_dir, log)
    if wait_ready:
        try:
            group.wait_ready()
        except BaseException:
            group.close()
            raise
    return group


def log_of(runtime_dir: Path) -> Path:
    """The log file of a group with this runtime folder."""
    return runtime_dir.with_name(f"{runtime_dir.name}.log")


def _environment(runtime_dir: Path, shards: int, app: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OURS) and not name.lower().endswith("_proxy")
    }
    ours = {
        "SESSIONS_BIND": "127.0.0.1:0",
        "SESSIONS_SHARDS": str(shards),
        "SESSIONS_RUNTIME_DIR": str(runtime_dir),
        "PYTHONUNBUFFERED": "1",
    }
    return kept | ours | ({"SESSIONS_APP": app} if app else {})


class Groups:
    """Starts groups for one test and remembers them; made by `open_groups`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[RunningGroup] = []

    def new_runtime_dir(self) -> Path:
        """A fresh short path for a runtime folder, not made yet."""
        return self._folder / f"r{len(self._started)}"

    def start(
        self,
        *,
        runtime_dir: Path | None = None,
        shards: int = 1,
        env: Mapping[str, str] | None = None,
        app: str = "",
        conf: Path = CONF,
        args: Sequence[str] = (),
        descriptor_limit: int | None = None,
        wait_ready: bool = True,
    ) -> RunningGroup:
        """`start_group` in a fresh runtime folder unless one is given.

        Raises:
            GroupError: See `start_group`.
        """
        group = start_group(
            runtime_dir=runtime_dir or self.new_runtime_dir(),
            shards=shards,
            env=env,
            app=app,
            conf=conf,
            args=args,
            descriptor_limit=descriptor_limit,
            wait_ready=wait_ready,
        )
        self._started.append(group)
        return group

    def close(self) -> list[str]:
        """Stop all; see `RunningGroup.close`. The logs go to stdout, which a failed test shows."""
        wrong = []
        for group in reversed(self._started):
            wrong += group.close()
            sys.stdout.write(f"--- log of {group.runtime_dir.name}\n{group.log()}\n")
        return wrong


@contextlib.contextmanager
def open_groups() -> Iterator[Groups]:
    """The body of a fixture that hands out groups.

    Raises:
        GroupError: A group left a process or a socket file, or did not stop cleanly although no
            test signalled it.
    """
    folder = Path(tempfile.mkdtemp(prefix="ses", dir="/tmp"))  # short: sockets have 107 bytes
    groups = Groups(folder)
    try:
        yield groups
    finally:
        wrong = groups.close()
        shutil.rmtree(folder)
    if wrong:
        raise GroupError("; ".join(wrong))
