"""Listening Unix sockets of the runtime folder.

A socket appears under its name only when it can be connected to, and is private from its first
moment: bound under another name with mode 0600, then renamed. A file in its place is stale, since
the group holds the folder's lock.

Spec: docs/architecture.md#runtime-folder
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

_BACKLOG: Final = 512
_PASSING_SUFFIX: Final = ".new"
# What sun_path holds besides its end (Linux), less the passing name's suffix.
PATH_LIMIT_BYTES: Final = 107 - len(_PASSING_SUFFIX)


def listen_unix(path: Path, kind: socket.SocketKind) -> socket.socket:
    """Make a listening, non-blocking Unix socket of mode 0600.

    Args:
        path: At most `PATH_LIMIT_BYTES`.
        kind: SOCK_STREAM or SOCK_SEQPACKET.

    Raises:
        OSError: The folder is not writable or the path is too long.
    """
    passing = path.with_name(path.name + _PASSING_SUFFIX)
    passing.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, kind)
    mask = os.umask(0o177)
    try:
        listener.bind(str(passing))
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(mask)
    listener.listen(_BACKLOG)
    listener.settimeout(0)
    passing.rename(path)
    return listener
