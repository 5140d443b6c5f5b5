"""The reason of an end: a line that a dying member leaves for the arbiter.

Gunicorn tells its hooks neither how a worker ended nor why. The how comes from the kernel; the
why, as far as the member knew it, from this anonymous shared mapping, made before the fork.

Spec: docs/architecture.md#life-and-death
"""

from __future__ import annotations

import mmap
from typing import Final

_SIZE_BYTES: Final = 1024  # an exception's message; longer ones are cut


class SharedReason:
    """One line of text, written by the member, read by the arbiter."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, _SIZE_BYTES)

    @property
    def text(self) -> str:
        """What the member wrote, or ""."""
        return self._map[:].split(b"\0", 1)[0].decode(errors="replace")

    def write(self, text: str) -> None:
        """Leave a line.

        Args:
            text: White space runs become one space; cut at 1023 bytes.
        """
        line = " ".join(text.split()).encode(errors="replace")[: _SIZE_BYTES - 1]
        self._map[: len(line) + 1] = line + b"\0"
