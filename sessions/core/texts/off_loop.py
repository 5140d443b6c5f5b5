"""Work on long texts leaves the loop.

Rendering, encoding and comparing take milliseconds per 16 KiB; in a thread they hold up no other
session for longer than the interpreter's switches take.

Must not know what the work is.

Spec: docs/sessions.md#turns
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

# Rendering and encoding more text than this leaves the loop: 16 KiB cost 1.3 ms, 1 MiB 110 ms
# (measured, with tiktoken).
_OFF_LOOP_BYTES: Final = 16384

_T = TypeVar("_T")


async def off_loop(text_bytes: int, work: Callable[[], _T]) -> _T:
    """Do work on text here if it is little, in a thread if it would hold up the loop."""
    return work() if text_bytes <= _OFF_LOOP_BYTES else await asyncio.to_thread(work)
