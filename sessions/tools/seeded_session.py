"""A seeded session as its environment sees it: its state, its tools, its calls.

`seed` fills it, the agent's calls use it, `verify` grades it and `close` gives up what it has. A
rollout that is stopped closes the tools alone: its session can still be graded.

Spec: docs/tools.md#sessions-seeded-by-a-request
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from sessions.errors.seeded_sessions import SessionNotOpenError, ToolNotGrantedError
from sessions.errors.unseen import LocalProtocolError
from sessions.routing.episodes import EpisodeId
from sessions.tools.open_work import OpenWork
from sessions.tools.served_tools import ServedTools, ToolCall
from sessions.tools.tool import Tool, tool_of

# Paths of our own, so no tools.
SEED_ROUTE: Final = "seed_session"
VERIFY_ROUTE: Final = "verify"
CLOSE_ROUTE: Final = "close_session"
_TAKEN: Final = frozenset({SEED_ROUTE, VERIFY_ROUTE, CLOSE_ROUTE, "mcp"})


@dataclass(slots=True, kw_only=True)
class SeededSession:
    """One session.

    Attributes:
        id: Given by the client, or made here.
        rollout: What it is a session of, if its seed said so.
        state: The environment's own; None until `seed` puts something there.
        told: What `seed` gave, as JSON says it.
        calls: What the agent called, in the server's order.
        stopped: Set when somebody stops the rollout.
        served: The tools; made by `serve_tools`.
        over_mcp: Names of those that are called over MCP.
        verdicts: What grades it.
        uses: Requests that use it now.
        last_used: Loop time of the last one's begin or end.
    """

    id: str
    rollout: EpisodeId | None = None
    state: Any = None
    told: Mapping[str, Any] = field(default_factory=dict)
    calls: list[ToolCall] = field(default_factory=list)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    served: ServedTools = field(init=False)
    over_mcp: frozenset[str] = frozenset()
    verdicts: OpenWork = field(default_factory=OpenWork)
    uses: int = 0
    last_used: float = 0.0

    def __post_init__(self) -> None:
        """Have no tools yet."""
        self.served = ServedTools([], self.calls)

    @property
    def is_stopped(self) -> bool:
        """Whether somebody stopped the rollout; the tools are closed since then."""
        return self.stopped.is_set()

    # --- what `seed` uses

    def serve_tools(
        self, tools: Iterable[Tool | Callable[..., Any]], *, over_mcp: Collection[str] | None = None
    ) -> None:
        """Say which tools the agent has; once, in `seed`.

        Args:
            tools: Functions with annotated parameters, plain or async, or tools made of such. Each
                is a route of its own, `POST /<name>`.
            over_mcp: Names of those that are also tools over MCP; None for all.

        Raises:
            LocalProtocolError: What is given as a tool cannot be one, or has a name of ours.
        """
        made = [tool if isinstance(tool, Tool) else tool_of(tool) for tool in tools]
        served = ServedTools(made, self.calls)
        taken = _TAKEN & served.tools.keys()
        if taken:
            raise LocalProtocolError(f"{min(taken)!r} is a route of every environment")
        names = served.tools.keys() if over_mcp is None else frozenset(over_mcp)
        if not names <= served.tools.keys():
            raise LocalProtocolError("a tool over MCP is none of the session's tools")
        self.served, self.over_mcp = served, frozenset(names)
        if self.is_stopped:
            self._close_stopped()

    # --- what the server uses

    @contextmanager
    def used(self) -> Iterator[None]:
        """A request uses the session while the context lasts."""
        loop = asyncio.get_running_loop()
        self.uses += 1
        self.last_used = loop.time()
        try:
            yield
        finally:
            self.uses -= 1
            self.last_used = loop.time()

    def stop(self) -> bool:
        """Close the tools and nothing else; whether they were open."""
        was_running = not self.is_stopped
        self._close_stopped()
        self.stopped.set()
        return was_running

    def _close_stopped(self) -> None:
        self.served.close(lambda: not_open_error("its rollout was stopped, "))

    def close(self) -> None:
        """Let nothing use the session any more; what does is cancelled and answered as gone."""
        for work in (self.served, self.verdicts):
            work.close(lambda: not_open_error("it was closed, "))


@dataclass(frozen=True, slots=True)
class GrantedTools:
    """The tools of a session that one request may call.

    Attributes:
        session: Whose.
        names: Those that the request's token allows; None for all.
    """

    session: SeededSession
    names: frozenset[str] | None = None

    @property
    def tools(self) -> Mapping[str, Tool]:
        """By name, in the order in which they were given."""
        there = self.session.served.tools
        names = there.keys() if self.names is None else self.names
        return {name: tool for name, tool in there.items() if name in names}

    def check(self, name: str) -> None:
        """Let only a tool pass that may be called.

        Raises:
            SessionNotOpenError: The tools are closed.
            UnknownToolError: There is none of that name.
            ToolNotGrantedError: The token does not name it.
        """
        self.session.served.tool_named(name)
        if self.names is not None and name not in self.names:
            raise ToolNotGrantedError(f"the session token does not let its holder call {name!r}")

    async def call(self, name: str, arguments: object) -> Any:  # noqa: ANN401 - JSON
        """Run a tool once; see `ServedTools.call` and `check`."""
        self.check(name)
        with self.session.used():
            return await self.session.served.call(name, arguments)


def not_open_error(why: str = "") -> SessionNotOpenError:
    """The answer for a session that cannot be used.

    Args:
        why: Ends with a comma and a space, if there is anything to say.
    """
    return SessionNotOpenError(f"this session is not open: {why}not running on this server")
