"""The metrics page: Prometheus text for the whole group, from the board alone.

Every shard's numbers carry the label `shard`; nothing is asked of a shard's loop, so a page is as
cheap and as safe as a probe. The numbers are at most a beat (one second) old.

Spec: docs/operations.md#metrics
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sessions.lending.board import ROUTER_ROW, Phase
from sessions.lending.group import VERSION, Group
from sessions.lending.group_state import GroupState, group_state
from sessions.lending.tally import Tally

METRICS_PATH: Final = b"/metrics"
CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

_OUTCOMES: Final = ("recorded", "unrecorded", "failed")
_BEAT_NEVER: Final = float("inf")
# Tally field -> (metric, help, units of the field in one of the metric).
_GAUGES: Final[Mapping[str, tuple[str, str, float]]] = MappingProxyType(
    {
        "turns_in_flight": ("sessile_turns_in_flight", "Turns that run now.", 1),
        "replay_bytes": ("sessile_replay_stored_bytes", "Replay stored now.", 1),
        "replay_sessions": ("sessile_replay_sessions", "Sessions with stored replay.", 1),
        "ingest_bytes": ("sessile_ingest_held_bytes", "Held of replies that still arrive.", 1),
        "loop_lag_us": ("sessile_loop_lag_seconds", "Largest lag of the last second.", 1e6),
    }
)


def metrics_page(group: Group) -> bytes:
    """The page, UTF-8 text of type `CONTENT_TYPE`.

    Args:
        group: Whose board is read.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_BoardCollector(group))
    return generate_latest(registry)


class _BoardCollector(Collector):
    def __init__(self, group: Group) -> None:
        self._group = group

    def collect(self) -> Iterator[Metric]:
        yield from self._of_the_group()
        board = self._group.board
        rows = {str(i): board.read_row(board.row_of_shard(i)) for i in range(board.shards)}
        up = GaugeMetricFamily("sessile_shard_up", "1 if the shard is ready.", labels=["shard"])
        age = GaugeMetricFamily("sessile_beat_age_seconds", "Since a beat.", labels=["shard"])
        held = GaugeMetricFamily("sessile_sessions", "Open sessions.", labels=["shard"])
        served = CounterMetricFamily("sessile_requests", "Requests answered.", labels=["shard"])
        for shard, row in rows.items():
            up.add_metric([shard], float(row.phase is Phase.READY))
            if row.beat_age_s != _BEAT_NEVER:
                age.add_metric([shard], row.beat_age_s)
            held.add_metric([shard], row.sessions)
            served.add_metric([shard], row.requests)
        yield from (up, age, held, served)
        yield from _of_tallies(
            {str(i): board.tally_of(board.row_of_shard(i)) for i in range(board.shards)}
        )

    def _of_the_group(self) -> Iterator[Metric]:
        current = group_state(self._group)
        state = GaugeMetricFamily("sessile_group_state", "1 for the state.", labels=["state"])
        for member in GroupState:
            state.add_metric([member.value], float(member is current))
        yield state
        info = GaugeMetricFamily(
            "sessile_info", "The run and its version.", labels=["instance_id", "version"]
        )
        info.add_metric([self._group.instance_id, VERSION], 1)
        yield info
        uptime_s = (time.time_ns() - self._group.board.started_ns) / 1e9
        yield GaugeMetricFamily("sessile_uptime_seconds", "Since the start.", value=uptime_s)
        claims = self._group.board.read_row(ROUTER_ROW).sessions
        yield GaugeMetricFamily("sessile_claims", "Claims that the router knows.", value=claims)


def _of_tallies(tallies: Mapping[str, Tally]) -> Iterator[Metric]:
    turns = CounterMetricFamily("sessile_turns", "Turns by outcome.", labels=["shard", "outcome"])
    read = CounterMetricFamily("sessile_engine_reply_bytes", "Read from engines.", labels=["shard"])
    ended = CounterMetricFamily("sessile_sessions_ended", "Deleted or expired.", labels=["shard"])
    for shard, tally in tallies.items():
        for outcome in _OUTCOMES:
            turns.add_metric([shard, outcome], getattr(tally, f"{outcome}_turns"))
        read.add_metric([shard], tally.engine_bytes)
        ended.add_metric([shard], tally.ended_sessions)
    yield from (turns, read, ended)
    for field in fields(Tally):
        if field.name in _GAUGES:
            name, meaning, units = _GAUGES[field.name]
            gauge = GaugeMetricFamily(name, meaning, labels=["shard"])
            for shard, tally in tallies.items():
                gauge.add_metric([shard], getattr(tally, field.name) / units)
            yield gauge
