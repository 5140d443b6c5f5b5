"""The end of a process without the rest of the interpreter.

A member that must go at once cannot run its exit handlers: they wait for threads, and a member
would unwind through the arbiter's own frames, which it inherited by the fork.

Spec: docs/architecture.md#life-and-death
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn


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
