"""Deaths of members under a fleet of exchanges, and what each client must have seen.

`crash` puts a fleet in the air over a running group, lets one member die, and judges what every
client saw: exactly one reply, or one status that says what died, or a visible cut of a reply in
its middle. A client that had its reply may see the connection end. Under `continue` the exchanges
of the others are released afterwards and must end as if nothing had happened.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import enum
import json
import signal
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.support.flights import (
    IDLE,
    MIDDLE,
    UNANSWERED,
    End,
    Fleet,
    Flight,
    Kind,
    Landing,
    open_fleet,
)
from tests.support.group import RunningGroup
from tests.support.ids import ids_of_shard
from tests.support.memory_cgroup import memory_limit
from tests.support.processes import is_alive
from tests.support.raw import open_raw, request_bytes
from tests.support.replies import Reply
from tests.support.waiting import wait_until_async

APP: Final = "tests.support.flight_app:flights"
VICTIM: Final = 1
SHARDS: Final = 3
_DEGRADED_S: Final = 20.0


class Death(enum.Enum):
    """How a member dies; the value is what the cause says of it."""

    KILL = "was killed by SIGKILL"
    SEGV = "was killed by SIGSEGV"
    ABRT = "was killed by SIGABRT"
    EXIT = "exited with status 0"
    OOM = "killed by SIGKILL"
    STOP = "did not beat for 2 s"
    ROUTER = "router"
    ARBITER = "arbiter"


OF_A_SHARD: Final = (
    Death.KILL,
    Death.SEGV,
    Death.ABRT,
    Death.EXIT,
    Death.OOM,
    Death.STOP,
)
# What the shard may still take: enough to answer, not enough for the exchange that eats.
_OOM_BYTES: Final = 32 << 20
_SIGNALS: Final[Mapping[Death, tuple[str, signal.Signals]]] = {
    Death.KILL: (f"shard {VICTIM}", signal.SIGKILL),
    Death.SEGV: (f"shard {VICTIM}", signal.SIGSEGV),
    Death.ABRT: (f"shard {VICTIM}", signal.SIGABRT),
    Death.STOP: (f"shard {VICTIM}", signal.SIGSTOP),
    Death.ROUTER: ("router", signal.SIGKILL),
    Death.ARBITER: ("arbiter", signal.SIGKILL),
}


@dataclass(slots=True, kw_only=True)
class Crash:
    """What came of one death.

    Attributes:
        seen: How often clients of each kind saw what, in words.
        faults: Clients that saw what they must not see, in words.
        settled_s: From the death until the last client knew.
    """

    seen: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    settled_s: float = 0.0

    def note(self, flight: Flight, landing: Landing, fault: str) -> None:
        """Add what one client saw."""
        statuses = " ".join(str(reply.status) for reply in landing.replies)
        seen = f"{statuses or 'nothing'}, {landing.end.value}"
        self.seen[f"{flight.kind.name.lower()}: {seen}"] += 1
        if fault:
            self.faults.append(f"{flight}: {fault}: {seen}")


async def crash_and_halt(group: RunningGroup, death: Death, count: int) -> Crash:
    """Let a member of a group with the `halt` policy die.

    Args:
        group: `SHARDS` shards that run `APP`; for `Death.STOP` with SESSIONS_TIMEOUT_S=2.
        death: Of whom and how.
        count: Exchanges in flight.
    """
    crash = Crash()
    async with open_fleet(group.address, shards=SHARDS, count=count) as fleet:
        died_at = time.monotonic()
        await _kill(group, death, fleet)
        landings = await fleet.land()
        crash.settled_s = time.monotonic() - died_at
        for flight, landing in zip(fleet.flights, landings, strict=True):
            fault = _fault_of_end(flight, landing) or _fault_of_halt(flight, landing, death)
            crash.note(flight, landing, fault)
    return crash


async def crash_and_go_on(group: RunningGroup, death: Death, count: int) -> Crash:
    """Let a shard of a group with the `continue` policy die; see `crash_and_halt`."""
    crash = Crash()
    async with open_fleet(group.address, shards=SHARDS, count=count) as fleet:
        died_at = time.monotonic()
        await _kill(group, death, fleet)
        held = [f for f in fleet.flights if f.shard == VICTIM]
        await asyncio.gather(*(_judge_held(flight, crash) for flight in held))
        crash.settled_s = time.monotonic() - died_at
        await _wait_degraded(group)
        await fleet.release([shard for shard in range(SHARDS) if shard != VICTIM])
        others = [flight for flight in fleet.flights if flight.shard != VICTIM]
        await asyncio.gather(*(_judge_other(flight, crash) for flight in others))
    return crash


async def _kill(group: RunningGroup, death: Death, fleet: Fleet) -> None:
    if death is Death.EXIT:
        await fleet.add_deadly(Kind.EXITING, VICTIM)
        return
    if death is Death.OOM:
        victim = group.pids[f"shard {VICTIM}"]
        with memory_limit(victim, _OOM_BYTES):
            await fleet.add_deadly(Kind.EATING, VICTIM)
            await wait_until_async(lambda: not is_alive(victim), "the kernel killed the shard")
        return
    member, number = _SIGNALS[death]
    group.signal(member, number)


def _fault_of_end(flight: Flight, landing: Landing) -> str:
    """What holds for every death that ends the connection."""
    if landing.end is End.HUNG:
        return "hung"
    if flight.kind in MIDDLE and (landing.replies or landing.end is End.CLOSED):
        # A stopped shard is killed seconds later: until then the readers of others read on.
        is_elsewhere = flight.kind is Kind.FLOODED and flight.shard != VICTIM
        is_whole = is_elsewhere and flight.has_right_middle(landing.replies[0])
        return "" if is_whole else "a reply in its middle was not cut"
    if flight.kind not in MIDDLE and landing.end is End.CUT:
        return "a cut where no reply had begun"
    if len(landing.replies) > 1:
        return "more than one reply"
    return ""


def _fault_of_halt(flight: Flight, landing: Landing, death: Death) -> str:
    is_told = death in OF_A_SHARD
    if flight.kind in UNANSWERED or flight.kind is Kind.HALF_HEAD:
        if not is_told and not landing.replies:
            return ""  # the one death of which no client is told
        wanted = (503, "group_dying", f"shard {VICTIM}", death.value)
        return _fault_of_status(landing, *(wanted if is_told else (*wanted[:2], "", "")))
    is_second = flight.kind not in MIDDLE and landing.replies
    return "a second reply" if is_second else ""


def _fault_of_status(landing: Landing, status: int, code: str, *words: str) -> str:
    if not landing.replies:
        return "dropped without a reason"
    (reply,) = landing.replies
    found = _error_of(reply)
    if (reply.status, found["code"], reply.header("x-should-retry")) != (status, code, "false"):
        return f"wrong answer {reply.status} {found}"
    missing = [word for word in words if word not in found["message"]]
    if missing or reply.header("connection") != "close":
        return f"the answer lacks {missing or 'connection: close'}: {found}"
    return ""


def _error_of(reply: Reply) -> dict[str, str]:
    error: dict[str, str] = json.loads(reply.body)["error"]
    return error


async def _judge_held(flight: Flight, crash: Crash) -> None:
    """A client of the dead shard under `continue`."""
    if flight.kind in IDLE:
        reply = await flight.ask_other(ids_of_shard(0, SHARDS)[0])
        landing = Landing(replies=[reply], end=End.OPEN)
        crash.note(flight, landing, "" if reply.status == 200 else "no other shard serves it")
        return
    if flight.kind is Kind.HALF_HEAD:
        await flight.finish_head()
    landing = await flight.land()
    fault = _fault_of_end(flight, landing)
    if not fault and (flight.kind in UNANSWERED or flight.kind is Kind.HALF_HEAD):
        fault = _fault_of_gone(flight, landing)
        if landing.end is not End.CLOSED:
            fault = fault or "the connection did not end in order"
    crash.note(flight, landing, fault)


async def _judge_other(flight: Flight, crash: Crash) -> None:
    """A client of a shard that lives."""
    try:
        await flight.go_on()
    except (AssertionError, OSError) as error:
        crash.faults.append(f"{flight}: disturbed: {error!r}")
    crash.seen[f"{flight.kind.name.lower()} elsewhere: undisturbed"] += 1


async def _wait_degraded(group: RunningGroup) -> None:
    async with asyncio.timeout(_DEGRADED_S):
        while True:
            async with open_raw(group.address) as probe:
                reply = await probe.ask(request_bytes("GET", "/readyz"))
            assert reply.status == 200, reply.body
            if json.loads(reply.body)["status"] == "degraded":
                return
            await asyncio.sleep(0.01)


def _fault_of_gone(flight: Flight, landing: Landing) -> str:
    if flight.session:
        return _fault_of_status(landing, 410, "shard_gone", f"shard {VICTIM}")
    return _fault_of_status(landing, 502, "shard_died", f"shard {VICTIM}")
