"""Answers of the probe addresses, from the board alone.

`/livez` says that the loop that answers turns. `/readyz` says whether requests are served: every
shard is ready and beats, and the group does not drain. `/healthz` and `/health` tell the same
with the state of every shard, `/metrics` with all numbers. No shard's loop and no engine is asked,
so a busy shard cannot fail a probe.

Spec: docs/operations.md#probes
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sessions.lending.board import Row
from sessions.lending.group import VERSION, Group
from sessions.lending.group_state import GroupState, group_state
from sessions.lending.metrics import CONTENT_TYPE, METRICS_PATH, metrics_page

_PROBES: Final = frozenset({b"/livez", b"/readyz", b"/healthz", b"/health", METRICS_PATH})
_JSON: Final = "application/json"


def is_probe(path: bytes) -> bool:
    """Whether the path is answered here."""
    return path in _PROBES


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReply:
    """The answer of a probe.

    Attributes:
        status: 200 or 503.
        content_type: Of the body.
        body: Text.
    """

    status: int
    content_type: str = _JSON
    body: bytes


def probe_reply(path: bytes, group: Group) -> ProbeReply:
    """Answer a probe.

    Args:
        path: One for which `is_probe` is true.
        group: Whose board is read.
    """
    if path == b"/livez":
        return ProbeReply(status=200, body=_compact({"status": "ok"}))
    if path == METRICS_PATH:
        return ProbeReply(status=200, content_type=CONTENT_TYPE, body=metrics_page(group))
    state = group_state(group)
    status = 200 if state in (GroupState.OK, GroupState.DEGRADED) else 503
    told = {"status": state.value} if path == b"/readyz" else _health(group, state)
    return ProbeReply(status=status, body=_compact(told))


def _health(group: Group, state: GroupState) -> dict[str, object]:
    board = group.board
    shards = [_shard(i, board.read_row(board.row_of_shard(i))) for i in range(board.shards)]
    return {
        "status": state.value,
        "instance_id": group.instance_id,
        "version": VERSION,
        "uptime_s": round((time.time_ns() - board.started_ns) / 1e9, 1),
        "shards": shards,
        "cause": board.cause,
    }


def _shard(index: int, row: Row) -> dict[str, object]:
    beat_age_s = None if row.beat_age_s == float("inf") else round(row.beat_age_s, 1)
    return {
        "index": index,
        "state": row.phase.name.lower(),
        "pid": row.pid,
        "beat_age_s": beat_age_s,
        "sessions": row.sessions,
        "requests": row.requests,
    }


def _compact(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
