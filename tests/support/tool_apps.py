"""Tool environments that tests put behind a group as SESSIONS_APP.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from examples.counter_env import CounterEnvironment
from sessions.tools.episode import Episode

_log: Final = logging.getLogger(__name__)


class SweptEnvironment(CounterEnvironment):
    """Says in the log that an episode was cleaned, after a while."""

    async def run(self, request: dict[str, Any], episode: Episode) -> dict[str, Any]:
        """Count, then clean."""

        async def clean() -> None:
            await asyncio.sleep(0.1)
            _log.warning("cleaned episode=%s", episode.id.key)

        episode.on_cleanup(clean)
        return await super().run(request, episode)
