"""Tests of benchmarks.usage on this very process."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time

import pytest

from benchmarks.usage import (
    children_cpu_s,
    read_busy_s,
    read_cpu_of,
    read_cpu_s,
    read_memory,
    read_wait_s,
)
from tests.support.waiting import wait_until


def spin_until(cpu_s: float) -> None:
    """Use the CPU until this process has used so many seconds of it."""
    while time.process_time() < cpu_s:
        sum(range(1000))


def test_cpu_counts_what_a_process_spends() -> None:
    start, spent_s = read_cpu_s(os.getpid()), time.process_time()
    spin_until(spent_s + 0.05)
    assert read_cpu_s(os.getpid()) - start >= 0.04


def test_cpu_of_the_machine_and_of_this_process_only_grow() -> None:
    busy_s, own_s = read_busy_s(), children_cpu_s()
    spin_until(time.process_time() + 0.05)
    assert read_busy_s() >= busy_s + 0.02
    assert children_cpu_s() >= own_s + 0.02


def test_a_process_that_shares_a_core_waits_for_it() -> None:
    core = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{core}}}); print(flush=True)\nwhile True: pass"
    busy = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)
    ]
    try:
        for process in busy:
            assert process.stdout is not None
            process.stdout.readline()
        wait_until(lambda: all(read_wait_s(process.pid) > 0.01 for process in busy), "both waited")
    finally:
        for process in busy:
            process.kill()
            process.communicate()


def test_cpu_is_told_by_name() -> None:
    assert set(read_cpu_of({"me": os.getpid()})) == {"me"}


def test_memory_grows_with_what_is_held_and_its_peak_stays() -> None:
    before = read_memory(os.getpid())
    with mmap.mmap(-1, 32 << 20) as held:  # what malloc gives may have been resident before
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1
        during = read_memory(os.getpid())
    after = read_memory(os.getpid())
    assert during.now_bytes >= before.now_bytes + (30 << 20)
    assert after.peak_bytes >= during.now_bytes - (1 << 20)


def test_a_process_that_has_ended_is_refused() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(ProcessLookupError):
        read_cpu_s(process.pid)
    with pytest.raises(ProcessLookupError):
        read_wait_s(process.pid)
    with pytest.raises(ProcessLookupError):
        read_memory(process.pid)
