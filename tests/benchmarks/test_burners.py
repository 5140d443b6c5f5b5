"""Tests of benchmarks.burners: they burn, and end with the block or with their parent."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from benchmarks.burners import open_burners
from tests.support.group import ROOT
from tests.support.processes import cpu_s, is_alive
from tests.support.waiting import wait_until

_PARENT = """
import sys, time
from pathlib import Path
from benchmarks.burners import open_burners
with open_burners(1, Path(sys.argv[1])) as pids:
    print(*pids, flush=True)
    time.sleep(60)
"""


def test_burners_burn_until_the_block_ends(tmp_path: Path) -> None:
    with open_burners(2, tmp_path / "log") as pids:
        wait_until(lambda: all(cpu_s(pid) > 0.05 for pid in pids), "both burn")
    assert [is_alive(pid) for pid in pids] == [False, False]
    assert (tmp_path / "log").read_bytes() == b""


def test_a_burner_ends_when_its_parent_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PARENT, str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        burner = int(parent.stdout.readline())
        wait_until(lambda: cpu_s(burner) > 0.05, "it burns")
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_alive(burner), "it ends")
