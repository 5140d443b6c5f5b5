"""Ends without the rest of the interpreter."""

import atexit
import io
import os
import sys
import threading

from sessions.chassis.ending import end_process, leave_process
from tests.support.stand_ins import status_of


class _BrokenStream(io.StringIO):
    def flush(self) -> None:
        raise RuntimeError("reentrant call")


def test_the_status_is_the_code_and_nothing_else_runs():
    def act() -> None:
        atexit.register(os._exit, 5)
        threading.Thread(target=threading.Event().wait).start()  # an exit would wait for it
        end_process(71)

    assert status_of(act) == 71


def test_what_was_printed_before_is_not_lost():
    reader, writer = os.pipe()

    def act() -> None:
        sys.stdout = os.fdopen(writer, "w")
        sys.stdout.write("last line")
        end_process(0)

    assert status_of(act) == 0
    assert os.read(reader, 20) == b"last line"


def test_a_broken_stream_does_not_keep_it_alive():
    def act() -> None:
        sys.stdout = _BrokenStream()
        end_process(3)

    assert status_of(act) == 3


def test_a_process_that_leaves_runs_its_exit_handlers_and_waits_for_no_thread():
    reader, writer = os.pipe()

    def act() -> None:
        atexit.register(os.write, writer, b"handled")
        threading.Thread(target=threading.Event().wait).start()
        leave_process(4)

    assert status_of(act) == 4
    assert os.read(reader, 20) == b"handled"
