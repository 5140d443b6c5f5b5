"""The reason that a dying member leaves."""

import os

from sessions.chassis.reason import SharedReason
from tests.support.stand_ins import status_of


def test_nothing_is_said_before_the_first_write():
    assert SharedReason().text == ""


def test_the_text_of_a_child_is_read_by_its_parent():
    reason = SharedReason()

    def child() -> None:
        reason.write("out of paper")
        os._exit(3)

    status_of(child)
    assert reason.text == "out of paper"


def test_a_text_of_many_lines_becomes_one_line():
    reason = SharedReason()
    reason.write("two\n  lines\tand\r\nmore")
    assert reason.text == "two lines and more"


def test_a_later_shorter_text_leaves_nothing_of_the_first():
    reason = SharedReason()
    reason.write("a long story")
    reason.write("short")
    assert reason.text == "short"


def test_a_text_is_cut_at_the_limit_and_even_within_a_character():
    reason = SharedReason()
    reason.write("x" * 1022 + "é" + "tail")
    assert reason.text == "x" * 1022 + "�"


def test_a_lone_surrogate_does_not_hide_the_rest():
    reason = SharedReason()
    reason.write("bad \udcff name")
    assert reason.text == "bad ? name"
