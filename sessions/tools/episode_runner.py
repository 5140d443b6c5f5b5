"""Runs the episodes of one shard for an environment: admission, serving, clean-up, sweep.

Apart from `ToolEnvironment`, so that a subclass has nothing to collide with: all that is ours
stands here, all that is the user's there. An episode runs in a task of its own; it is counted from
that task's first step to the end of its clean-up, so the limit holds whatever happens in between.

Spec: docs/tools.md#an-episodes-life
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from sessions.errors.client_visible import RequestError
from sessions.errors.group import OverloadedError, draining_error, stopped_error
from sessions.routing.episode_tokens import sign_episode_token
from sessions.routing.episodes import EpisodeId
from sessions.tools.contained import wait_contained
from sessions.tools.context import ToolContext
from sessions.tools.episode import Episode
from sessions.tools.episode_registry import EpisodeRegistry, claim_key_of
from sessions.tools.grants import Grants, grants_of
from sessions.tools.http_json import json_reply_of, read_object, run_while_connected
from sessions.tools.rollout_stops import RolloutStops
from sessions.tools.served_episode import ServedEpisode
from sessions.tools.tool import Tool, tool_of

_log: Final = logging.getLogger(__name__)
_NONCE_BYTES: Final = 16
_SWEEP_SLACK_S: Final = 1.0  # over the budget of the clean-up, for what stands around it
Run = Callable[[dict[str, Any], Episode], Awaitable[dict[str, Any]]]


class EpisodeRunner:
    """See the module docstring.

    Attributes:
        registry: The episodes whose tools are served.
        stops: Stops them.
    """

    def __init__(self, context: ToolContext, run: Run) -> None:
        """Run nothing yet.

        Args:
            context: Of the shard.
            run: Plays one episode.
        """
        self.registry: Final = EpisodeRegistry(context.run_secret, context.episode_header)
        self.stops: Final = RolloutStops(self.registry.named_in)
        self._context = context
        self._run = run
        self._running: set[asyncio.Task[Any]] = set()
        self._is_closing = False

    def __len__(self) -> int:
        """How many episodes run, those in their clean-up included."""
        return len(self._running)

    async def answer(self, request: Request) -> Response:
        """Answer one request for an episode; a client that leaves cancels it.

        Raises:
            RequestError: The body names no episode.
            NotReadyError: There is no room, or the shard is ending.
            GroupStoppedError: The shard ended before the episode did.
            Exception: What the environment raised.
        """
        body = await read_object(request)
        episode = Episode(id=_episode_id_of(body), origin=self._context.origin_of(request.scope))
        return json_reply_of(await run_while_connected(request.receive, self._play(body, episode)))

    @asynccontextmanager
    async def serve_tools(
        self, episode: Episode, tools: Iterable[Tool | Callable[..., Any]]
    ) -> AsyncIterator[Grants]:
        """See `ToolEnvironment.serve_tools`."""
        made = [tool if isinstance(tool, Tool) else tool_of(tool) for tool in tools]
        nonce = secrets.token_hex(_NONCE_BYTES)
        served = ServedEpisode(episode.id, nonce, made, episode.calls)
        token = sign_episode_token(self._context.run_secret, episode.id.key, nonce)
        claim = claim_key_of(episode.id)
        await self._context.claims.claim(claim)

        def stop() -> bool:
            was_running = not episode.is_stopped
            served.close()
            episode.stopped.set()
            return was_running

        try:
            self.registry.add(served)
            self.stops.add(episode.id.key, stop)
            yield grants_of(episode.origin, self._context.episode_header, token)
        finally:
            # Without a wait up to here, so that no cancellation can come between.
            served.close()
            self.stops.remove(episode.id.key)
            self.registry.remove(served)
            self._context.claims.release(claim)
            await served.wait_ended(self._context.cleanup_s)

    async def sweep(self) -> None:
        """See `ToolEnvironment.sweep`."""
        self._is_closing = True
        tasks = set(self._running)
        for task in tasks:
            task.cancel()
        if tasks:
            limit_s = self._context.cleanup_s + _SWEEP_SLACK_S
            _, left = await asyncio.wait(tasks, timeout=limit_s)
            if left:
                _log.error("episodes did not end count=%d", len(left))

    def _check_room(self) -> None:
        """Let one more episode in.

        Raises:
            NotReadyError: The shard is ending.
            OverloadedError: Its share of the server's episodes is used up.
        """
        if self._is_closing:
            raise draining_error()
        if len(self._running) >= self._context.max_episodes:
            raise OverloadedError(
                f"{self._context.max_episodes} episodes run on this shard, its share of"
                " SESSIONS_MAX_EPISODES, try again soon"
            )

    async def _play(self, body: dict[str, Any], episode: Episode) -> dict[str, Any]:
        """Run one episode and its clean-up, in a task that nothing else runs in."""
        self._check_room()  # no wait from here until it is counted
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker: a coroutine runs in a task
        self._running.add(task)
        try:
            return await wait_contained(self._run(body, episode))
        except asyncio.CancelledError:
            _log.info("episode cancelled episode=%r", episode.id.key)
            if self._is_closing:
                raise stopped_error(None) from None
            raise
        finally:
            try:
                await episode.clean_up.run(self._context.cleanup_s)
            finally:
                self._running.discard(task)


def _episode_id_of(body: dict[str, Any]) -> EpisodeId:
    """The episode that a body names.

    Raises:
        RequestError: It names none.
    """
    rollout_id, attempt = body.get("rollout_id"), body.get("attempt", 0)
    if not isinstance(rollout_id, str):
        raise RequestError("rollout_id is not a text", param="rollout_id")
    if type(attempt) is not int:  # a bool is none
        raise RequestError("attempt is not a whole number", param="attempt")
    return EpisodeId(rollout_id=rollout_id, attempt=attempt)
