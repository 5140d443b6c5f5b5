"""Clients of a group that is told to stop: what becomes of every request that was accepted.

Some clients open a new connection for every request, others ask on and on over kept connections,
until nobody listens any more. Each reply is checked byte by byte and each end is counted.

Connections are accepted in the order in which they were made. So a new connection that was reset
had been accepted if one that was made later got an answer; else it waited in the kernel's backlog
when the listener closed, which no server can help.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.support.apps import pattern_of, receipt_of
from tests.support.group import RunningGroup
from tests.support.raw import Address, AsyncRawConnection, open_raw, request_bytes
from tests.support.replies import ConnectionEndedError, Reply, ReplyCutError
from tests.support.waiting import wait_until_async

NEW_CLIENTS: Final = 20
KEPT_CLIENTS: Final = 20
_BODY: Final = b"w" * 700
_REPLY_BYTES: Final = 300
_WARM_REPLIES: Final = 300
_LONGEST_S: Final = 0.3  # of what a request takes in the application


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reset:
    """A new connection that ended with a reset before any byte of a reply."""

    connected_at: float


@dataclass(slots=True, kw_only=True)
class Stop:
    """What the clients of a stopping group saw.

    Attributes:
        seen: Replies by status, `refused` connects, `idle end` of a kept connection that the
            server ended while a request was on its way there, and `backlog`.
        faults: What must not be, in words.
    """

    seen: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    resets: list[_Reset] = field(default_factory=list)
    last_answered_at: float = 0.0  # when the latest answered new connection began to connect

    def judge_resets(self) -> None:
        """Tell accepted connections from those of the backlog; to be called at the end."""
        for reset in self.resets:
            if reset.connected_at < self.last_answered_at:
                self.faults.append("a new connection was accepted and reset")
            else:
                self.seen["backlog"] += 1


class StopLoad:
    """Loads one address until it refuses; see the module docstring."""

    def __init__(self, address: Address) -> None:
        self.stop = Stop()
        self._address = address
        self._numbers: Iterator[int] = itertools.count()

    async def run(self) -> Stop:
        """Load until every client is refused."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(NEW_CLIENTS + KEPT_CLIENTS):
                tasks.create_task(self._live(keeps=number >= NEW_CLIENTS))
        self.stop.judge_resets()
        return self.stop

    async def _live(self, *, keeps: bool) -> None:
        """One client: a connection after the other until nobody listens."""
        is_refused = False
        while not is_refused:
            began_at = time.monotonic()
            try:
                async with open_raw(self._address) as connection:
                    await self._use(connection, began_at, keeps=keeps)
            except ConnectionRefusedError:
                self.stop.seen["refused"] += 1
                is_refused = True
            except OSError:  # reset while connecting
                self.stop.resets.append(_Reset(connected_at=began_at))

    async def _use(self, connection: AsyncRawConnection, began_at: float, *, keeps: bool) -> None:
        """Ask once, or until the server ends the connection."""
        connected_at = time.monotonic()
        count = 0
        is_open = True
        try:
            while is_open and (keeps or not count):
                is_open = await self._ask(connection)
                count += 1
                self.stop.last_answered_at = max(self.stop.last_answered_at, began_at)
            if not is_open and await connection.read_to_end():
                self.stop.faults.append("bytes behind the last reply")
        except TimeoutError:
            self.stop.faults.append(f"no answer {count}")
        except OSError:
            if count:
                self.stop.faults.append(f"reset after {count} replies, open={is_open}")
            else:
                self.stop.resets.append(_Reset(connected_at=connected_at))
        except ReplyCutError:
            self.stop.faults.append("a reply was cut")
        except ConnectionEndedError:
            self.stop.seen["idle end"] += 1
            if not count:
                self.stop.faults.append("accepted, and ended without a word")

    async def _ask(self, connection: AsyncRawConnection) -> bool:
        """One exchange; whether the connection can carry another."""
        number = next(self._numbers)
        sleep_s = _LONGEST_S if number % 7 == 0 else 0
        target = f"/sessions/s{number % 64}/echo?id=n{number}&out={_REPLY_BYTES}&sleep={sleep_s}"
        reply = await connection.ask(request_bytes("POST", target, body=_BODY))
        self.stop.seen[str(reply.status)] += 1
        fault = _fault_of(reply, f"n{number}")
        if fault:
            self.stop.faults.append(f"{fault}: {reply.status} {reply.headers} {reply.body[:200]!r}")
        return reply.header("connection") != "close"


async def stop_under_load(group: RunningGroup) -> Stop:
    """Load a group, tell it to stop in the middle of that, load on until it refuses.

    Args:
        group: With the `cases` application.
    """
    load = StopLoad(group.address)
    running = asyncio.create_task(load.run())
    await wait_until_async(
        lambda: running.done() or load.stop.seen["200"] >= _WARM_REPLIES, "the load runs"
    )
    group.signal("arbiter", signal.SIGTERM)
    return await running


def _fault_of(reply: Reply, seed: str) -> str:
    if reply.status == 503:
        is_draining = json.loads(reply.body)["error"]["code"] == "not_ready"
        if not is_draining or reply.header("retry-after") is None:
            return "a 503 that does not say when to come again"
        return "" if reply.header("connection") == "close" else "a 503 that keeps the connection"
    is_right = reply.status == 200 and reply.body == pattern_of(seed, _REPLY_BYTES)
    return "" if is_right and reply.header("x-got") == receipt_of(_BODY) else "a wrong reply"
