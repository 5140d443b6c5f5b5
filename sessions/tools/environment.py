"""`ToolEnvironment`: what a user subclasses to run episodes that an agent plays from outside.

`POST /run` is one episode: it is admitted while this shard has room, `run` plays it, and its
clean-up follows however it ended: by a result, an error, a client that left, or the end of the
shard. Inside of `run`, `serve_tools` claims the episode and yields what the agent needs to call
its tools; leaving it closes the episode and gives the claim up.

Must not know processes or channels.

Spec: docs/tools.md#an-environment-in-five-minutes
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from starlette.applications import Starlette
from starlette.routing import Route

from sessions.tools.context import ToolContext
from sessions.tools.direct_http import direct_route
from sessions.tools.episode import Episode
from sessions.tools.episode_runner import EpisodeRunner
from sessions.tools.grants import Grants
from sessions.tools.tool import Tool
from sessions.tools.tool_app import tool_app

RUN_PATH: Final = "/run"


class ToolEnvironment:
    """Runs episodes; see the module docstring. A subclass implements `run`.

    Attributes:
        context: Of the shard.
    """

    def __init__(self, context: ToolContext) -> None:
        """Run nothing yet; a subclass that has an own constructor calls this one.

        Args:
            context: Of the shard.
        """
        self.context: Final = context
        self._episode_runner: Final = EpisodeRunner(context, self.run)

    # --- what a subclass implements

    async def run(self, request: dict[str, Any], episode: Episode) -> dict[str, Any]:
        """Play one episode.

        Args:
            request: The body of `POST /run`.
            episode: Which one, its calls and its clean-up.

        Returns:
            What `POST /run` answers, as JSON can say it.

        Raises:
            ClientVisibleError: Becomes the answer; any other exception becomes a 500.
        """
        raise NotImplementedError

    async def start(self) -> None:
        """Open what all episodes of this shard share; called once, before the first."""

    async def stop(self) -> None:
        """Close what `start` opened; called once, after the last episode's clean-up."""

    # --- what a subclass uses

    def serve_tools(
        self, episode: Episode, tools: Iterable[Tool | Callable[..., Any]]
    ) -> AbstractAsyncContextManager[Grants]:
        """Serve tools to the agent of an episode, until the context ends.

        Leaving the context, on whichever way, first closes the episode and releases its claim, then
        waits for calls that were cancelled by that.

        Args:
            episode: As `run` was given it.
            tools: Functions with annotated parameters, plain or async, or tools made of such.

        Returns:
            A context that gives what the agent needs; calls are served before it is entered.

        Raises:
            DuplicateClaimError: On entering: the same attempt is running, on whichever shard.
            LocalProtocolError: On entering: what is given as a tool cannot be one.
        """
        return self._episode_runner.serve_tools(episode, tools)

    # --- what the shard uses

    @property
    def open_episodes(self) -> int:
        """How many episodes run on this shard, those in their clean-up included."""
        return len(self._episode_runner)

    def app(self) -> Starlette:
        """The application of this environment; made once."""
        runner = self._episode_runner
        routes = [Route(RUN_PATH, runner.answer, methods=["POST"]), runner.stops.route]
        routes.append(direct_route(runner.registry))
        return tool_app(routes, runner.registry, self._tool_life, self.context.mcp)

    async def sweep(self) -> None:
        """Take no more episodes, cancel those that run and wait for their clean-up.

        Ends in a bounded time: what does not end by its budget is left behind, with a log line.
        """
        await self._episode_runner.sweep()

    @asynccontextmanager
    async def _tool_life(self, _app: Starlette) -> AsyncIterator[None]:
        await self.start()
        try:
            yield
        finally:
            await self.sweep()
            await self.stop()
