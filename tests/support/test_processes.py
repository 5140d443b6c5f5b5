"""The /proc readers, tried on this process and on children of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support import processes
from tests.support.waiting import DeadlineError, wait_until, wait_until_async


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    waits = [sys.executable, "-c", "input()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process
        process.kill()


def test_descriptors_are_counted():
    before = processes.descriptor_count(os.getpid())
    with socket.socket(), socket.socket():
        assert processes.descriptor_count(os.getpid()) == before + 2
    assert processes.descriptor_count(os.getpid()) == before


def test_threads_are_counted():
    before = processes.thread_count(os.getpid())
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    assert processes.thread_count(os.getpid()) == before + 1
    release.set()
    thread.join()


def test_memory_and_cpu_are_of_the_right_size():
    pid = os.getpid()
    block = b"x" * (64 << 20)
    assert len(block) < processes.rss_bytes(pid) < 4 << 30
    assert len(block) < processes.pss_bytes(pid) <= processes.rss_bytes(pid) + (16 << 20)
    assert processes.cpu_s(pid) == pytest.approx(time.process_time(), abs=0.05)


def test_children_and_session_members_are_found(child: subprocess.Popen[bytes]):
    assert child.pid in processes.children_of(os.getpid())
    assert processes.parent_of(child.pid) == os.getpid()
    assert processes.session_members(child.pid) == {child.pid}


def test_a_zombie_is_not_alive(child: subprocess.Popen[bytes]):
    pidfd = os.pidfd_open(child.pid)
    assert not processes.wait_exits([pidfd], 0)
    assert processes.is_alive(child.pid)
    os.kill(child.pid, signal.SIGKILL)
    assert processes.wait_exits([pidfd], 10)
    os.close(pidfd)
    assert not processes.is_alive(child.pid)
    assert processes.session_members(child.pid) == set()
    child.wait()
    with pytest.raises(ProcessLookupError):
        processes.rss_bytes(child.pid)
    with pytest.raises(ProcessLookupError):
        processes.descriptor_count(child.pid)


def test_a_listener_is_found_by_its_process(child: subprocess.Popen[bytes]):
    assert processes.listening_address(child.pid) is None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert processes.listening_address(os.getpid()) == listener.getsockname()


def test_waiting_has_an_end_and_says_for_what():
    with pytest.raises(DeadlineError, match="the moon"):
        wait_until(lambda: False, "the moon", 0.02)
    wait_until(lambda: True, "anything", 0)


async def test_awaiting_has_an_end_and_says_for_what():
    with pytest.raises(DeadlineError, match="the moon"):
        await wait_until_async(lambda: False, "the moon", 0.02)
    await wait_until_async(lambda: True, "anything", 0)
