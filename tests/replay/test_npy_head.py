"""The changing head of `.npy` blobs."""

from __future__ import annotations

import base64
import io

import numpy
import pytest

from sessions.replay.npy_head import ENOUGH_CHARS, LIMIT_CHARS, MAGIC, inline_head_chars


def blob_of(shape: tuple[int, ...], version: tuple[int, int] = (1, 0)) -> bytes:
    raw = io.BytesIO()
    numpy.lib.format.write_array(raw, numpy.zeros(shape, "uint8"), version=version)
    return base64.b64encode(raw.getvalue())


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_the_head_of_an_npy_blob_covers_its_header(version: tuple[int, int]):
    one, two = blob_of((9, 5), version), blob_of((12345, 5), version)
    chars = inline_head_chars(one)
    assert chars == inline_head_chars(two)
    assert chars == inline_head_chars(one[:ENOUGH_CHARS])
    assert chars is not None
    assert chars % 4 == 0
    assert b"}" in base64.b64decode(one[:chars])
    assert base64.b64decode(one[chars:]).strip(b"\0") == b""


def test_any_other_blob_has_no_head():
    assert inline_head_chars(b"AAAA") == 0
    assert inline_head_chars(MAGIC[:-1] + b"A") == 0


@pytest.mark.parametrize("size", [0, 1, len(MAGIC), ENOUGH_CHARS - 1])
def test_more_is_wanted_while_a_start_may_become_a_head(size: int):
    assert inline_head_chars(blob_of((1,))[:size]) is None


@pytest.mark.parametrize("rest", [b"********", b"AA==AAAA", b"========"])
def test_a_head_that_is_no_base64_is_none(rest: bytes):
    assert inline_head_chars(MAGIC + rest) == 0


def test_a_head_of_no_sane_length_is_none():
    def with_length(size: int) -> bytes:
        return base64.b64encode(b"\x93NUMPY\x01\x00" + size.to_bytes(2, "little") + b"{ ")

    fits = LIMIT_CHARS * 3 // 4 - 10
    assert inline_head_chars(with_length(fits)) == LIMIT_CHARS
    assert inline_head_chars(with_length(fits + 1)) == 0
