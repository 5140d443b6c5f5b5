"""The orphan guard: a worker whose arbiter dies, dies too.

The kernel sends SIGKILL to the worker when the arbiter's thread that forked it ends, so even a
wedged worker goes. The order must be set after every change of user (that clears it), and an
arbiter that died before the order was given is found by its pid.

Spec: docs/architecture.md#life-and-death
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

from sessions.chassis.verdicts import ExitCode

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent ends.

    Ends the process at once if the parent is gone already.

    Args:
        parent_pid: The pid that the parent had at the fork.

    Raises:
        OSError: The kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        os._exit(ExitCode.WORKER_DIED)
