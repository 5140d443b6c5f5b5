"""Kept groups whose members are stand-ins: how tests of the chassis start and command them.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.support.group import Groups, RunningGroup
from tests.support.waiting import wait_until

CONF: Final = Path(__file__).with_name("chassis_conf.py")
# An app that may start, and short limits, so that what waits for one ends within a test.
SHORT: Final = {
    "SESSIONS_ENGINE_URL": "sim:",
    "SESSIONS_TIMEOUT_S": "2",
    "SESSIONS_BOOT_DEADLINE_S": "15",
    "SESSIONS_GRACEFUL_S": "1",
}
GONE_S: Final = 5.0  # the goal is 1 s; a busy machine must not fail a test
_RETURNED: Final = 99


def start(
    groups: Groups,
    *args: str,
    shards: int = 2,
    plan: str = "",
    env: Mapping[str, str] | None = None,
    runtime_dir: Path | None = None,
    wait_ready: bool = True,
) -> RunningGroup:
    """Start a group of stand-ins.

    Args:
        groups: The fixture.
        args: More arguments for gunicorn.
        shards: With more than one there is a router.
        plan: What members do at boot: `shard 0=raise; router=hang`.
        env: More variables.
        runtime_dir: One that was used before; a fresh one if None.
        wait_ready: Whether to return only when the group is ready.
    """
    return groups.start(
        conf=CONF,
        args=args,
        runtime_dir=runtime_dir,
        shards=shards,
        env={**SHORT, "STAND_IN": plan, **(env or {})},
        wait_ready=wait_ready,
    )


def order(group: RunningGroup, member: str, words: str) -> None:
    """Tell a running member to do something; it looks every 20 ms."""
    new = group.runtime_dir / "order.new"
    new.write_text(words)
    new.rename(group.runtime_dir / f"order {member}")


def obeyed(group: RunningGroup, member: str) -> None:
    """Wait until the member has taken its order."""
    wait_until(
        lambda: not (group.runtime_dir / f"order {member}").exists(), f"{member} took its order"
    )


def lines(group: RunningGroup, *words: str) -> list[str]:
    """Log lines that hold all of these words."""
    return [line for line in group.log().splitlines() if all(word in line for word in words)]


def wait_line(group: RunningGroup, *words: str, count: int = 1) -> None:
    """Wait until that many log lines hold all of these words."""
    wait_until(lambda: len(lines(group, *words)) >= count, f"a line with {words}")


def ended(group: RunningGroup, code: int) -> None:
    """The group ends by itself with this code, and nothing is left of it."""
    assert group.wait_exit(GONE_S) == code, group.log()
    group.wait_gone(GONE_S)
    assert not (group.runtime_dir / "ready.json").exists()
    assert "Traceback" not in group.log()
    assert "Unhandled exception" not in group.log()


def cause(group: RunningGroup) -> str:
    """The one critical line of a group; gunicorn's own of a time-out is not counted."""
    (line,) = [line for line in lines(group, " CRITICAL ") if "WORKER TIMEOUT" not in line]
    return line


def forks(group: RunningGroup) -> int:
    """How many members were forked."""
    return len(lines(group, "Booting worker"))


def status_of(act: Callable[[], object], deadline_s: float = 10.0) -> int:
    """Run a function in a forked child and see how that ends.

    Returns:
        The child's exit status, or minus the number of a signal; 99 if the function returned.
    """
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(_RETURNED)
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(1)  # an exception: never unwind into pytest
    end = time.monotonic() + deadline_s
    while (found := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() >= end:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            raise AssertionError(f"the child did not end within {deadline_s:g} s")
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(found[1])
