"""Giving space in the middle of a file back, where the file system can.

Must not know whose space it is.

Spec: docs/replay.md#files
"""

from __future__ import annotations

import ctypes
import logging
import os
from typing import Final

_KEEP_SIZE: Final = 0x01  # FALLOC_FL_KEEP_SIZE of linux/falloc.h
_PUNCH_HOLE: Final = 0x02  # FALLOC_FL_PUNCH_HOLE

log = logging.getLogger("sessions.replay")


class HolePuncher:
    """Frees parts of files; a failure is logged once and costs only space."""

    def __init__(self) -> None:
        function = ctypes.CDLL(None, use_errno=True).fallocate  # Python has only posix_fallocate
        function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        function.restype = ctypes.c_int
        self._fallocate = function
        self._is_told = False

    def punch(self, fd: int, offset: int, size: int) -> None:
        """Free a range in the middle; its whole blocks, the rest becomes zeros."""
        if size and self._fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, offset, size):
            self._tell(os.strerror(ctypes.get_errno()))

    def cut(self, fd: int, size: int) -> None:
        """Free all from an offset on."""
        try:
            os.ftruncate(fd, size)
        except OSError as error:
            self._tell(str(error))

    def _tell(self, reason: str) -> None:
        if not self._is_told:
            self._is_told = True
            log.warning("space of replay is freed only with its session reason=%s", reason)
