"""Groups and lives for tests of one member in this process: real shared state, a fake worker.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sessions.lending.board import ROUTER_ROW, Board, Phase
from sessions.lending.cells import Cells
from sessions.lending.group import Group
from sessions.settings import RouterMode, Settings

SMALL: Settings = Settings(max_connections=64, bind="127.0.0.1:0")


def group_of(runtime_dir: Path, settings: Settings = SMALL, **changes: object) -> Group:
    """The shared state of a group that nobody runs.

    Args:
        runtime_dir: Where its sockets go.
        settings: All limits.
        changes: Fields of the settings to replace.
    """
    chosen = dataclasses.replace(settings, **changes)  # type: ignore[arg-type]  # any field
    return Group(
        settings=chosen,
        board=Board(chosen.shards),
        cells=Cells(chosen.max_connections),
        runtime_dir=runtime_dir,
        run_secret=b"s" * 32,
        instance_id="0123456789abcdef" * 2,
    )


def ready_group(tmp_path: Path, shards: int = 2, router: RouterMode = RouterMode.AUTO) -> Group:
    """A group all of whose members are ready and beat."""
    group = group_of(tmp_path, shards=shards, router=router)
    for row in range(shards + 1):
        if row != ROUTER_ROW or group.settings.has_router:
            group.board.set_phase(row, Phase.READY, 1000 + row)
            group.board.beat(row, sessions=row, requests=10 * row)
    return group


def let_pass(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Move the board's clock on."""
    later = time.monotonic_ns() + int(seconds * 1e9)
    monkeypatch.setattr(time, "monotonic_ns", lambda: later)


class BootFailedError(AssertionError):
    """The role under test said that it cannot boot; a real life would have ended the process."""


class CutError(AssertionError):
    """The role under test said that it had to cut; a real life would have ended the process."""


class FakeLife:
    """A life that only remembers, and writes a member's row like a real one."""

    def __init__(self, group: Group, row: int, pid: int = 0) -> None:
        self.stop_requested = asyncio.Event()
        self.hurry_requested = asyncio.Event()
        self.is_ready = False
        self.is_drained = False
        self.boot_failure = ""
        self.cut = ""
        self.is_idle: Callable[[], bool] | None = None
        self.beats: list[tuple[int, int]] = []
        self._group = group
        self._row = row
        self._pid = pid

    def beat(self, *, sessions: int = 0, requests: int = 0) -> None:
        """Remember the counters and publish them."""
        self.beats.append((sessions, requests))
        self._group.board.beat(self._row, sessions=sessions, requests=requests)

    def on_ready(self) -> None:
        """Remember, and write the phase."""
        self.is_ready = True
        self._group.board.set_phase(self._row, Phase.READY, self._pid)

    def on_drained(self) -> None:
        """Remember."""
        self.is_drained = True

    def watch_idle(self, is_idle: Callable[[], bool]) -> None:
        """Remember."""
        self.is_idle = is_idle

    def end_cut(self, reason: str) -> None:
        """Remember; a real one ends the process here.

        Raises:
            CutError: Always.
        """
        self.cut = reason
        raise CutError(reason)

    def fail_boot(self, reason: str) -> None:
        """Remember; a real one ends the process here.

        Raises:
            BootFailedError: Always.
        """
        self.boot_failure = reason
        raise BootFailedError(reason)
