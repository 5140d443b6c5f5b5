"""A death under 200 exchanges in every state: each client learns of it, none is merely dropped.

`python -m benchmarks.endurance deaths` repeats the same fifty times and prints what was seen.
"""

from __future__ import annotations

import sys

import pytest

from tests.support.crashes import (
    APP,
    SHARDS,
    Crash,
    Death,
    crash_and_go_on,
    crash_and_halt,
)
from tests.support.group import Groups, RunningGroup
from tests.support.memory_cgroup import can_limit_memory

IN_FLIGHT = 200
REPEATS = 2
# Death by the kernel's hand needs a control group of our own.
POSSIBLE = [death for death in Death if death is not Death.OOM or can_limit_memory()]
CONTINUE = {"SESSIONS_ON_SHARD_EXIT": "continue"}


def start(groups: Groups, death: Death, **env: str) -> RunningGroup:
    # A stopped shard is found by its beats alone; on a busy machine others may miss one, too.
    timeout_s = "2" if death is Death.STOP else "60"
    return groups.start(shards=SHARDS, env=env | {"SESSIONS_TIMEOUT_S": timeout_s}, app=APP)


def check(crash: Crash) -> None:
    seen = sorted(crash.seen.items())
    sys.stdout.write(f"settled {crash.settled_s:.3f} s\n")
    sys.stdout.writelines(f"{count:4} {what}\n" for what, count in seen)
    assert crash.faults == []
    assert crash.seen.total() >= IN_FLIGHT


@pytest.mark.parametrize("repeat", range(REPEATS))
@pytest.mark.parametrize("death", POSSIBLE, ids=lambda death: death.name.lower())
async def test_every_client_gets_one_reply_one_status_or_a_cut_when_the_group_halts(
    groups: Groups, death: Death, repeat: int
):
    group = start(groups, death)
    check(await crash_and_halt(group, death, IN_FLIGHT))
    assert group.wait_exit() == (-9 if death is Death.ARBITER else 70)
    group.wait_gone()


@pytest.mark.parametrize("repeat", range(REPEATS))
@pytest.mark.parametrize("death", [Death.KILL, Death.EXIT, Death.STOP], ids=lambda d: d.name)
async def test_only_the_clients_of_the_dead_shard_notice_when_the_group_continues(
    groups: Groups, death: Death, repeat: int
):
    group = start(groups, death, **CONTINUE)
    check(await crash_and_go_on(group, death, IN_FLIGHT))
    assert group.terminate() == 0
    assert group.log().count("Booting worker") == SHARDS + 1, "nobody is replaced"
