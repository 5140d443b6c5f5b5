"""Stops of rollouts: `POST /ng-rollout/{rollout}/stop` ends one that runs, and lets it be graded.

The rollout is named by the path: its id, with `-a<N>` behind it for a retry. A request that brings
an episode's token is at the shard of that episode, so no other can be stopped by it. The agent's
further calls are answered as gone, and those that run are cancelled; what the environment has of it
stays, so that a verdict can still be made. Who claimed the rollout is reached by its claim.

Spec: docs/tools.md#stopping-a-rollout
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sessions.tools.http_json import json_reply_of
from sessions.tools.open_work import not_running_error

_PATH: Final = "/ng-rollout/{rollout}/stop"
Stop = Callable[[], bool]


class RolloutStops:
    """The rollouts that can be stopped on this shard, by name."""

    def __init__(self, named_in: Callable[[Headers], str | None] = lambda _: None) -> None:
        """Have none.

        Args:
            named_in: The rollout by whose name a request came to this shard, if not by its path.
        """
        self._named_in = named_in
        self._stops: dict[str, Stop] = {}

    def add(self, rollout: str, stop: Stop) -> None:
        """Let a rollout be stopped; whoever calls this holds its claim.

        Args:
            rollout: Its name; see `EpisodeId.key`.
            stop: Stops it, again too; whether it ran until now.
        """
        self._stops[rollout] = stop

    def remove(self, rollout: str) -> None:
        """It is over; one that is not there is ignored."""
        self._stops.pop(rollout, None)

    @property
    def route(self) -> Route:
        """Where rollouts are stopped."""
        return Route(_PATH, self._answer, methods=["POST"])

    async def _answer(self, request: Request) -> Response:
        rollout = request.path_params["rollout"]
        stop = self._stops.get(rollout)
        if stop is None or self._named_in(request.headers) not in (None, rollout):
            raise not_running_error()
        status = "stopped" if stop() else "already_stopped"
        return json_reply_of({"rollout": rollout, "status": status})
