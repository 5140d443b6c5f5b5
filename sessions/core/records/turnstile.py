"""A turnstile for long replies: one piece of one reply in a turn of the loop, whoever waits.

Eight downloads that each write a piece in every turn make a chat wait for eight pieces whenever it
waits for the loop, and a chat does so some ten times. Here they take turns, in the order in which
they came; their sum is as fast as before, since the loop turns as often as it can.

Must not know what is sent.

Spec: docs/replay.md#read
"""

from __future__ import annotations

import asyncio
from collections import deque


class Turnstile:
    """See the module docstring; of one loop."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_open = True

    async def wait_turn(self) -> None:
        """Wait until it is the caller's turn: at once if nobody went through in this turn."""
        loop = asyncio.get_running_loop()
        if self._is_open:
            self._is_open = False
            loop.call_soon(self._let_next)
            return
        waiter = loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def _let_next(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():  # else it was cancelled
                waiter.set_result(None)
                asyncio.get_running_loop().call_soon(self._let_next)
                return
        self._is_open = True
