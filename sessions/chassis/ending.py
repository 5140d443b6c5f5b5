"""The end of a member's process without the rest of the interpreter.

A member inherits the arbiter's frames by the fork and must never unwind into them; and to take
apart all that a shard has loaded lasts for half a second, in which nothing useful happens.

Spec: docs/architecture.md#life-and-death
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from typing import NoReturn


def leave_process(code: int) -> NoReturn:
    """Run the exit handlers, then end the process; threads are not waited for.

    Args:
        code: The exit status.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no other way to run them and go
    end_process(code)


def end_process(code: int) -> NoReturn:
    """Flush the standard streams and end the process.

    Safe in a signal handler: a stream that is in use or broken is left as it is.

    Args:
        code: The exit status.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            stream.flush()
    os._exit(code)
