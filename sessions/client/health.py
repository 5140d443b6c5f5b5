"""The server's health as a value, and the one line that says what is wrong with it.

`parse_health` reads the reply of `/healthz`, which has the same body at 200 and 503. `fault_of`
decides: a healthy group is in state ok with every shard ready. Both are pure.

Spec: docs/operations.md#check
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sessions.client.answers import Answer, error_of, excerpt, json_of
from sessions.client.errors import UnhealthyError

_OK: Final = "ok"
_STALE: Final = "stale"
_DRAINING: Final = "draining"  # all shards are, and none is at fault
_READY: Final = "ready"
_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ok": "has lost a shard",
        "starting": "is still starting",
        "stale": "has a shard whose loop does not turn",
        "draining": "is draining and takes no new work",
        "dying": "is going down",
        "degraded": "is degraded",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardHealth:
    """One shard.

    Attributes:
        index: From 0.
        state: `ready` when it serves.
        pid: Its process on the server's machine; 0 before there is one.
        beat_age_s: Seconds since its loop last turned; None before the first beat.
        sessions: Open sessions.
    """

    index: int
    state: str
    pid: int
    beat_age_s: float | None
    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A group.

    Attributes:
        status: `ok`, or what it is doing instead.
        instance_id: Names this run; another one means that the server was started again and that
            all earlier sessions are gone.
        version: Of the server.
        uptime_s: Seconds since its start.
        shards: All of them, by index.
        cause: The first death in words, or "".
    """

    status: str
    instance_id: str
    version: str
    uptime_s: float
    shards: tuple[ShardHealth, ...]
    cause: str


def parse_healthy(answer: Answer, url: str) -> Health:
    """The health of a group that is healthy.

    Args:
        answer: The reply of `/healthz`.
        url: The server's address, the subject of the message.

    Raises:
        UnhealthyError: It is not healthy, or what answered is no sessile server.
    """
    health = parse_health(answer)
    if health is None:
        told = excerpt(answer.body) if answer.succeeded else str(error_of(answer))
        raise UnhealthyError(f"{url} does not tell its health: {told}")
    if fault := fault_of(health):
        raise UnhealthyError(f"{url} {fault}")
    return health


def parse_health(answer: Answer) -> Health | None:
    """What `/healthz` tells at any status; None if the body is not a health document."""
    found = json_of(answer.body)
    if not isinstance(found, dict):
        return None
    try:
        return Health(
            status=str(found["status"]),
            instance_id=str(found["instance_id"]),
            version=str(found["version"]),
            uptime_s=float(found["uptime_s"]),
            shards=tuple(_parse_shard(shard) for shard in found["shards"]),
            cause=str(found["cause"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _parse_shard(found: Mapping[str, object]) -> ShardHealth:
    beat_age_s = found["beat_age_s"]
    return ShardHealth(
        index=_whole(found["index"]),
        state=str(found["state"]),
        pid=_whole(found["pid"]),
        beat_age_s=float(beat_age_s) if isinstance(beat_age_s, int | float) else None,
        sessions=_whole(found["sessions"]),
    )


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"not a whole number: {value!r}")
    return value


def fault_of(health: Health) -> str:
    """What is wrong, as the rest of a line that begins with the server; "" if it is healthy."""
    at_fault = [shard for shard in health.shards if shard.state != _READY]
    if health.status == _OK and not at_fault:
        return ""
    if health.status == _STALE:
        at_fault = sorted(health.shards, key=_beat_age_s)[-1:]
    if health.status == _DRAINING:
        at_fault = []
    cause = " ".join(health.cause.split()) or ", ".join(map(_describe, at_fault))
    what = _WORDS.get(health.status, f"is {health.status}")
    return f"{what}: {cause}" if cause else what


def _beat_age_s(shard: ShardHealth) -> float:
    return float("inf") if shard.beat_age_s is None else shard.beat_age_s


def _describe(shard: ShardHealth) -> str:
    text = f"shard {shard.index}"
    if shard.pid:
        text += f" (pid {shard.pid})"
    if shard.state != _READY:
        return f"{text} is {shard.state}"
    return f"{text} last beat {_beat_age_s(shard):g} s ago"
