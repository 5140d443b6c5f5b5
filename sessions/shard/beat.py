"""The beat of a shard: once a second it says that its loop turns, and what it counts.

Spec: docs/lending.md#board
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Final

from sessions.lending.group import Group, Life
from sessions.shard.apps import LoadedApp
from sessions.shard.heap import Heap, trim_heap
from sessions.shard.loop_lag import LoopLag
from sessions.shard.server import ShardServer

_BEAT_S: Final = 1.0


class Beat:
    """See the module docstring."""

    def __init__(
        self, group: Group, index: int, life: Life, loaded: LoadedApp, server: ShardServer
    ) -> None:
        """Say nothing yet.

        Args:
            group: Whose board is written.
            index: Of the shard.
            life: Of its process.
            loaded: Its application.
            server: Which serves it.
        """
        self._board = group.board
        self._row = group.board.row_of_shard(index)
        self._life = life
        self._loaded = loaded
        self._server = server
        self._lag = LoopLag()
        self._heap = Heap(trim_heap, time.monotonic)

    async def run(self) -> None:
        """Beat until cancelled."""
        self._lag.start()
        try:
            while True:
                await asyncio.sleep(_BEAT_S)
                self.publish()
        finally:
            self._lag.stop()
            await self._heap.close()

    def publish(self) -> None:
        """Beat once."""
        tally = self._loaded.tally_of(self._server.app_state)
        lag_us = round(self._lag.take_worst_s() * 1e6)
        self._board.set_tally(self._row, replace(tally, loop_lag_us=lag_us))
        self._heap.look(tally.ended_sessions)
        requests = self._server.server_state.total_requests
        self._life.beat(sessions=self._loaded.open_sessions(), requests=requests)
