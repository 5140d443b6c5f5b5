"""Memory of this very process, and of files that it holds."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.weight import WeightWatch, read_weight
from tests.support.waiting import wait_until

MIB = 1 << 20


@contextmanager
def memfd(size_bytes: int) -> Iterator[int]:
    descriptor = os.memfd_create("test")
    try:
        os.write(descriptor, bytes(size_bytes))
        yield descriptor
    finally:
        os.close(descriptor)


def test_a_memfd_counts_its_blocks():
    before = read_weight([os.getpid()])
    with memfd(8 * MIB):
        during = read_weight([os.getpid()])
    after = read_weight([os.getpid()])
    assert during.memory_file_bytes - before.memory_file_bytes == 8 * MIB
    assert after.memory_file_bytes == before.memory_file_bytes


def test_pages_of_a_memfd_that_are_mapped_count_once():
    before = read_weight([os.getpid()])
    with memfd(8 * MIB) as descriptor, mmap.mmap(descriptor, 8 * MIB, prot=mmap.PROT_READ) as seen:
        assert seen.find(b"x") == -1  # looks at every page
        during = read_weight([os.getpid()])
    assert during.memory_file_bytes - before.memory_file_bytes == 8 * MIB
    assert during.pss_bytes - before.pss_bytes < 4 * MIB


def test_holes_of_a_memfd_do_not_count():
    before = read_weight([os.getpid()])
    with memfd(MIB) as descriptor:
        os.ftruncate(descriptor, 64 * MIB)
        during = read_weight([os.getpid()])
    assert during.memory_file_bytes - before.memory_file_bytes == MIB


def test_a_file_that_two_descriptors_or_processes_hold_counts_once():
    before = read_weight([os.getpid()])
    with memfd(MIB) as descriptor:
        other = os.dup(descriptor)
        child = subprocess.Popen(
            [sys.executable, "-c", "print(flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[descriptor],
        )
        try:
            assert child.stdout is not None
            child.stdout.readline()
            during = read_weight([os.getpid(), child.pid])
        finally:
            child.communicate(b"\n")
            os.close(other)
    assert during.memory_file_bytes - before.memory_file_bytes == MIB


def test_unlinked_files_count_where_they_lie(tmp_path: Path):
    with tempfile.TemporaryFile(dir=tmp_path) as on_disk:
        on_disk.write(bytes(MIB))
        on_disk.flush()
        os.fsync(on_disk.fileno())
        weight = read_weight([os.getpid()])
    freed = read_weight([os.getpid()])
    # The folder for temporary files may itself be in memory.
    held = weight.disk_file_bytes + weight.memory_file_bytes
    assert held - freed.disk_file_bytes - freed.memory_file_bytes == MIB


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no file system in memory")
def test_unlinked_files_in_memory_are_memory():
    before = read_weight([os.getpid()])
    with tempfile.TemporaryFile(dir="/dev/shm") as in_memory:
        in_memory.write(bytes(MIB))
        in_memory.flush()
        during = read_weight([os.getpid()])
    assert during.memory_file_bytes - before.memory_file_bytes == MIB
    assert during.disk_file_bytes == before.disk_file_bytes


def test_resident_memory_counts():
    before = read_weight([os.getpid()])
    with mmap.mmap(-1, 32 * MIB) as held:  # what malloc gives may have been resident before
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1
        during = read_weight([os.getpid()])
    assert during.pss_bytes - before.pss_bytes >= 30 * MIB
    assert during.memory_bytes == during.pss_bytes + during.memory_file_bytes


def test_a_watch_weighs_at_its_begin_and_then_again_and_again():
    with WeightWatch({"me": os.getpid()}, every_s=0.001) as watch:
        assert watch.weights
        wait_until(lambda: len(watch.weights) >= 3, "it was weighed again")
    count = len(watch.weights)
    assert [w.at_s for w in watch.weights] == sorted(w.at_s for w in watch.weights)
    assert len(watch.weights) == count


def test_a_process_that_has_ended_is_refused():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(ProcessLookupError):
        read_weight([process.pid])
