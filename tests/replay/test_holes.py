"""Space in the middle of a file."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from sessions.replay.holes import HolePuncher

BLOCK = 4096


def test_the_blocks_of_a_hole_are_freed_and_the_rest_stays():
    fd = os.memfd_create("test")
    try:
        os.pwrite(fd, b"x" * 8 * BLOCK, 0)
        HolePuncher().punch(fd, BLOCK, 4 * BLOCK)
        assert os.fstat(fd).st_blocks * 512 == 4 * BLOCK
        assert os.pread(fd, 8 * BLOCK, 0).strip(b"x") == b"\0" * 4 * BLOCK
        assert os.fstat(fd).st_size == 8 * BLOCK
    finally:
        os.close(fd)


def test_the_end_of_a_file_is_cut():
    fd = os.memfd_create("test")
    try:
        os.pwrite(fd, b"x" * 100, 0)
        HolePuncher().cut(fd, 10)
        assert os.pread(fd, 100, 0) == b"x" * 10
    finally:
        os.close(fd)


def test_a_file_that_has_no_holes_is_told_once(caplog: pytest.LogCaptureFixture, tmp_path: Path):
    read_only = os.open(tmp_path, os.O_RDONLY)
    try:
        puncher = HolePuncher()
        with caplog.at_level(logging.WARNING, "sessions.replay"):
            puncher.punch(read_only, 0, BLOCK)
            puncher.cut(read_only, 0)
    finally:
        os.close(read_only)
    assert len(caplog.records) == 1
