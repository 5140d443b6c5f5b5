"""An episode as the environment's `run` sees it: which one, its clean-up, its calls.

Spec: docs/tools.md#an-environment-in-five-minutes
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from sessions.routing.episodes import EpisodeId
from sessions.tools.cleanup import Callback, CleanUp
from sessions.tools.served_tools import ToolCall


@dataclass(slots=True, kw_only=True)
class Episode:
    """One run of one attempt.

    Attributes:
        id: Which attempt of which rollout.
        origin: Scheme and authority under which the caller reached this server.
        calls: What the agent called, in the server's order; grows while tools are served.
        clean_up: Runs at the end, however it comes.
        stopped: Set when somebody stops the rollout while its tools are served.
    """

    id: EpisodeId
    origin: str
    calls: list[ToolCall] = field(default_factory=list)
    clean_up: CleanUp = field(default_factory=CleanUp)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_stopped(self) -> bool:
        """Whether somebody stopped the rollout; its tools are closed since then."""
        return self.stopped.is_set()

    def on_cleanup(self, callback: Callback) -> None:
        """Run a plain or async callback at the end; the last one given runs first."""
        self.clean_up.push(callback)
