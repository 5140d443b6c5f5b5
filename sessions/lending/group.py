"""What all members of one group share: made by the arbiter before the forks, inherited by each.

`Group` is data; `Life` is how a role (router, shard, lone shard) speaks with the worker process
that runs it. The chassis gives both to the role, so a role knows nothing of gunicorn.

Spec: docs/architecture.md#processes
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from sessions.settings import ExitPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from sessions.lending.board import Board
    from sessions.lending.cells import Cells
    from sessions.settings import Settings

VERSION: Final = version("sessile")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The shared state of a group.

    Attributes:
        settings: As read by the arbiter.
        board: Shared counters.
        cells: One state cell per slot (lending rule 16).
        runtime_dir: Private folder (mode 0700) of the group's sockets.
        run_secret: Random bytes of this run, for session keys and tokens; never logged.
        instance_id: 32 hex digits that name this run in health answers.
    """

    settings: Settings
    board: Board
    cells: Cells
    runtime_dir: Path
    run_secret: bytes = field(repr=False)
    instance_id: str

    @property
    def goes_on(self) -> bool:
        """Whether the group goes on when a shard dies: as set, else as its application would."""
        policy = self.settings.on_shard_exit
        return self.board.goes_on if policy is ExitPolicy.APP else policy is ExitPolicy.CONTINUE

    @property
    def channel_path(self) -> Path:
        """The router's SEQPACKET listener, made by the router."""
        return self.runtime_dir / "router.channel"

    @property
    def ready_path(self) -> Path:
        """The ready file."""
        return self.runtime_dir / "ready.json"

    def shard_socket_path(self, index: int) -> Path:
        """A shard's own HTTP socket for probes and operators, made by the shard (mode 0600)."""
        return self.runtime_dir / f"shard-{index}.sock"


class Life(Protocol):
    """What a role tells its worker process and hears from it."""

    @property
    def stop_requested(self) -> asyncio.Event:
        """Set when the process was told to end gracefully (SIGTERM)."""

    @property
    def hurry_requested(self) -> asyncio.Event:
        """Set when the process was told to end quickly (SIGINT) with exchanges in flight.

        `stop_requested` is set, too. The role has a moment to answer them; then the process ends.
        """

    def beat(self, *, sessions: int = 0, requests: int = 0) -> None:
        """Say once a second that the role's loop turns; publishes the counters."""

    def on_ready(self) -> None:
        """The role can serve: ends the boot deadline."""

    def on_drained(self) -> None:
        """Nothing is in flight any more and nothing will be accepted: a clean end follows."""

    def watch_idle(self, is_idle: Callable[[], bool]) -> None:
        """Let a quick end (SIGINT) ask whether nothing is in flight; without it, it counts as cut.

        `is_idle` is called between any two steps of the loop, so it only reads.
        """

    def end_cut(self, reason: str) -> None:
        """The role ends, but had to cut exchanges: ends the process at once, as not drained.

        Leaves the reason for the log; does not return.
        """

    def fail_boot(self, reason: str) -> None:
        """The role cannot boot: logs the reason and ends the process at once; does not return."""
