"""The orphan guard. That members go with their arbiter is shown in test_keeper."""

import ctypes
import os
import signal
import time

from sessions.chassis.orphan import die_with_parent
from sessions.chassis.verdicts import ExitCode
from tests.support.processes import wait_exits
from tests.support.stand_ins import status_of


def test_a_child_is_killed_when_its_parent_ends():
    reader, writer = os.pipe()

    def parent() -> None:
        me = os.getpid()
        child = os.fork()
        if child == 0:
            die_with_parent(me)
            os.write(writer, b"%d" % os.getpid())
            time.sleep(60)
        os.set_blocking(reader, True)
        pid = int(os.read(reader, 20))  # the guard is set
        os.write(writer, b"%d" % pid)
        os._exit(0)

    assert status_of(parent) == 0
    pid = int(os.read(reader, 20))
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:  # gone and reaped already
        return
    assert wait_exits([pidfd], 5.0)
    os.close(pidfd)


def test_a_child_ends_at_once_when_its_parent_was_gone_before():
    assert status_of(lambda: die_with_parent(os.getpid())) == ExitCode.WORKER_DIED


def test_the_kernel_holds_the_order_afterwards():
    me = os.getpid()

    def child() -> None:
        die_with_parent(me)
        found = ctypes.c_int()
        ctypes.CDLL(None).prctl(2, ctypes.byref(found), 0, 0, 0)  # PR_GET_PDEATHSIG
        os._exit(found.value)

    assert status_of(child) == signal.SIGKILL
