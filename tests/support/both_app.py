"""An environment that has both: sessions that requests seed, and episodes that it runs.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.routing import Route

from examples.counter_env import CounterEnvironment
from sessions.routing.claimed_kinds import episode_kind
from sessions.routing.kinds import SessionKind
from sessions.tools.context import ToolContext
from tests.support.resources_app import CounterResources


class BothEnvironment(CounterResources):
    """Counters of both sorts; an episode's token is read before all else."""

    def __init__(self, context: ToolContext) -> None:
        super().__init__(context)
        self._episodes = CounterEnvironment(context)

    @property
    def session_kinds(self) -> Sequence[SessionKind]:
        """Episodes first."""
        context = self.context
        kind = episode_kind(context.episode_header, context.run_secret)
        return (kind, *super().session_kinds)

    def app(self) -> Starlette:
        """The routes of both."""
        app = super().app()
        paths = ("/run", "/tools/{name}")
        routes = [route for route in self._episodes.app().routes if isinstance(route, Route)]
        app.router.routes[:0] = [route for route in routes if route.path in paths]
        return app

    async def stop(self) -> None:
        """Close what both have."""
        await self._episodes.stop()
        await super().stop()
