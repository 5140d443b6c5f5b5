"""The runtime folder: where the sockets of one group stand, and nobody else's.

It is private (mode 0700, owned by the user that the workers run as). A lock file in it is held by
every member of the group, since a lock lasts until the last copy of its descriptor is closed: so
a second group never shares the folder, and what a killed group left behind is removed by the next
one only when all of its members are gone.

Spec: docs/operations.md#runtime-folder
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import Final

from sessions.errors.unseen import SettingsError
from sessions.lending.group import Group
from sessions.lending.unix_listener import PATH_LIMIT_BYTES

_TEMPORARY: Final = "sessile-"
_TEMPORARY_RANDOM: Final = 8  # characters that tempfile adds
_LOCK: Final = "lock"
_LEFT_BEHIND: Final = ("router.channel", "shard-*.sock", "ready.json*")
_LOCK_WAIT_S: Final = 2.0  # members of a killed arbiter are gone within 1 s
_LOCK_POLL_S: Final = 0.02


class RuntimeDir:
    """The folder of a running group; made by `open_runtime_dir`."""

    def __init__(self, path: Path, lock: int, *, is_temporary: bool) -> None:
        self.path = path
        self._lock = lock  # never closed: it ends with the process
        self._is_temporary = is_temporary
        self._owner_pid = os.getpid()
        atexit.register(self.remove)

    def remove(self) -> None:
        """Remove what the group made; does nothing in a child and when called again.

        A temporary folder goes as a whole. A given one stays, with its lock file: to remove that
        would let two groups hold different locks.
        """
        if os.getpid() != self._owner_pid:
            return
        if self._is_temporary:
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            _clear(self.path)


def planned_dir(given: str) -> Path:
    """Where the folder will be, for what must be known before it is made.

    Args:
        given: SESSIONS_RUNTIME_DIR; empty for a temporary folder, of which only the length of its
            name is known.
    """
    if given:
        return Path(given).absolute()
    return Path(tempfile.gettempdir(), _TEMPORARY + "x" * _TEMPORARY_RANDOM)


def open_runtime_dir(given: str, uid: int, gid: int) -> RuntimeDir:
    """Make or take the folder, lock it, and remove what a dead group left in it.

    Args:
        given: SESSIONS_RUNTIME_DIR; empty for a new temporary folder.
        uid: User id that the workers run as.
        gid: Their group id.

    Returns:
        The folder, locked; it is cleared when this process ends.

    Raises:
        SettingsError: It cannot be made, is not private, or another group runs in it.
    """
    try:
        path = _make(given, uid, gid)
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingsError(f"SESSIONS_RUNTIME_DIR={given} cannot be used: {error}") from error
    if not _wait_lock(lock):
        os.close(lock)
        raise SettingsError(
            f"another group is running in {path}: stop it, or set SESSIONS_RUNTIME_DIR to "
            "another folder"
        )
    _clear(path)
    return RuntimeDir(path, lock, is_temporary=not given)


def check_socket_paths(group: Group) -> None:
    """Refuse a folder whose sockets would have a path too long for their listeners.

    Raises:
        SettingsError: The message has the path, its length and the limit.
    """
    last = group.shard_socket_path(group.settings.shards - 1)
    for path in (group.channel_path, last):
        size = len(os.fsencode(path))
        if size > PATH_LIMIT_BYTES:
            raise SettingsError(
                f"socket path {path} has {size} bytes, the limit is {PATH_LIMIT_BYTES}: "
                "set SESSIONS_RUNTIME_DIR to a shorter folder"
            )


def _make(given: str, uid: int, gid: int) -> Path:
    if not given:
        path = Path(tempfile.mkdtemp(prefix=_TEMPORARY))
        os.chown(path, uid, gid)
        return path
    path = planned_dir(given)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        _check_private(path, uid)
    else:
        os.chown(path, uid, gid)
    return path


def _check_private(path: Path, uid: int) -> None:
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or mode & 0o077:
        raise SettingsError(
            f"SESSIONS_RUNTIME_DIR={path} must be a folder of its own, mode 0700, owned by user "
            f"{uid} (now mode {mode:04o}, user {found.st_uid}): name one that does not exist yet"
        )


def _wait_lock(lock: int) -> bool:
    end = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(_LOCK_POLL_S)
        else:
            return True


def _clear(path: Path) -> None:
    for pattern in _LEFT_BEHIND:
        for left in path.glob(pattern):
            left.unlink(missing_ok=True)
