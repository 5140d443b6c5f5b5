"""The spool folder: made or refused before the group starts, not when the first turn needs it.

The files in it have no names, so nothing has to be cleared, and groups may share a folder.

Spec: docs/replay.md#files
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from sessions.errors.unseen import SettingsError

_NEEDED: Final = 0o3  # to make a file in a folder: write and search


def prepare_spool_dir(given: str, uid: int, gid: int) -> None:
    """Make the folder if it is missing (mode 0700), else see that the members may write there.

    Args:
        given: SESSIONS_SPOOL_DIR; empty if replay stays in memory: nothing is done.
        uid: User id that the workers run as.
        gid: Their group id.

    Raises:
        SettingsError: It cannot be made, is no folder, or the workers may not write in it.
    """
    if not given:
        return
    path = Path(given)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        _check_writable(path, uid, gid)
    except OSError as error:
        raise SettingsError(f"SESSIONS_SPOOL_DIR={given} cannot be made: {error}") from error
    else:
        os.chown(path, uid, gid)


def _check_writable(path: Path, uid: int, gid: int) -> None:
    found = path.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise SettingsError(f"SESSIONS_SPOOL_DIR={path} is no folder")
    shift = 6 if found.st_uid == uid else 3 if found.st_gid == gid else 0
    may_write = uid == 0 or (found.st_mode >> shift) & _NEEDED == _NEEDED
    if not may_write:
        raise SettingsError(
            f"SESSIONS_SPOOL_DIR={path} cannot be written by user {uid}, as whom the shards run "
            f"(mode {stat.S_IMODE(found.st_mode):04o}, user {found.st_uid})"
        )
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise SettingsError(f"SESSIONS_SPOOL_DIR={path} is on a read-only file system")
