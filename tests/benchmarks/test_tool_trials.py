"""Tests of benchmarks.tool_trials: what counts as a fault. The trials run in test_tools."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from benchmarks.tool_trials import RIGHT, WRONG, Seen

GONE = "410 shard_gone"


def seen(**changes: object) -> Seen:
    found = Seen(
        direct=Counter({RIGHT: 8}),
        lists=Counter({RIGHT: 1}),
        mcp=Counter({RIGHT: 4}),
        dead=Counter({GONE: 2}),
        dead_mcp=Counter({GONE: 2}),
        left=Counter({RIGHT: 6}),
        shards={0, 1},
    )
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def test_all_right_is_no_fault() -> None:
    assert seen().faults() == []


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("direct", Counter({RIGHT: 7, WRONG: 1}), "direct calls: 1 x wrong"),
        ("direct", Counter(), "direct calls: none"),
        ("lists", Counter({"410 x": 3}), "MCP lists: 3 x 410 x"),
        ("mcp", Counter({RIGHT: 3, "410 x": 1}), "MCP calls: 1 x 410 x"),
        ("dead", Counter({GONE: 1, RIGHT: 1}), "direct calls of a dead shard: 1 x right"),
        ("dead_mcp", Counter({"502 x": 2}), "MCP calls of a dead shard: 2 x 502 x"),
        ("left", Counter({GONE: 1}), f"direct calls of the shards left: 1 x {GONE}"),
        ("shards", {2}, "only shards {2} answered"),
    ],
)
def test_whatever_else_came_is_a_fault(name: str, value: object, fault: str) -> None:
    assert seen(**{name: value}).faults() == [fault]


def test_json_has_every_counter() -> None:
    found = json.loads(json.dumps(seen().to_json()))
    assert found["direct"] == {RIGHT: 8}
    assert (len(found), found["shards"]) == (7, [0, 1])
