"""Tests of benchmarks.rounds: who is loaded when, and whose CPU is counted as whose."""

from __future__ import annotations

import os
import time

import pytest

from benchmarks.contestants import Contestant
from benchmarks.figures import Sample, Workload
from benchmarks.load import Run
from benchmarks.rounds import Bout, Rounds, describe_machine, sample_of

RUN = Run(count=10.0, duration_s=1.0)


def contestant(name: str) -> Contestant:
    return Contestant(name=name, address=("127.0.0.1", 1), pids={"shard 0": os.getpid()})


def burn() -> Run:
    end = time.process_time() + 0.02
    while time.process_time() < end:
        pass
    return RUN


def test_a_sample_has_the_servers_cpu_and_that_of_the_load() -> None:
    sample = sample_of(contestant("a"), burn)
    assert sample.run is RUN
    assert sample.cpu_s["shard 0"] >= 0.02
    assert sample.load_cpu_s >= 0.01  # by the clock's ticks


def test_every_bout_is_warmed_up_and_then_run_once_a_round_in_turn() -> None:
    ran: list[tuple[str, int]] = []

    def bout(name: str) -> Bout:
        def load(run_s: int) -> Sample:
            ran.append((name, run_s))
            return Sample(run=RUN, cpu_s={})

        return Bout(workload=Workload.KEPT, contestant=contestant(name), load=load)

    rounds = Rounds([bout("a"), bout("b")])
    rounds.run(2, 4)
    assert ran == [("a", 1), ("b", 1), ("a", 4), ("b", 4), ("a", 4), ("b", 4)]
    assert {key: len(found) for key, found in rounds.samples.items()} == {
        (Workload.KEPT, "a"): 2,
        (Workload.KEPT, "b"): 2,
    }
    assert (len(rounds.loads), len(rounds.strangers)) == (3, 2)


def test_a_server_that_died_ends_the_rounds() -> None:
    gone = Contestant(name="gone", address=("127.0.0.1", 1), pids={"shard 0": 2**22 + 1})
    with pytest.raises(ProcessLookupError):
        sample_of(gone, burn)


def test_the_machine_is_told_with_its_cores() -> None:
    assert describe_machine().startswith(f"{len(os.sched_getaffinity(0))} cores of ")
