import base64
import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.replay.base64_check import Base64Check

GOOD = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def verdict(text: bytes, cuts: list[int]) -> bool:
    check = Base64Check()
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    for start, stop in itertools.pairwise(places):
        check.feed(memoryview(text)[start:stop])
    return check.finish()


@pytest.mark.parametrize(
    ("text", "is_good"),
    [
        (b"", True),
        (b"QUJD", True),
        (b"+/+/", True),
        (b"QUI=", True),
        (b"QQ==", True),
        (b"QR==", True),  # bits that no byte needs
        (b"Q===", False),
        (b"====", False),
        (b"QUJ", False),
        (b"QQ=", False),
        (b"QUI=QUJD", False),
        (b"QQ==QQ==", False),
        (b"QU=D", False),
        (b"QU JD", False),
        (b"QUJ\n", False),
        (b"QUJ\\", False),
        (b'QUJ"', False),
        (b"-_-_", False),
        (b"QUJ\xc3", False),
        (b"QUJ\x00", False),
    ],
)
def test_it_tells_base64_from_anything_else(text: bytes, *, is_good: bool):
    for cut in range(len(text) + 1):
        assert verdict(text, [cut]) == is_good


@given(
    st.lists(st.sampled_from([b"QUJD", b"Q", b"=", b"==", b"+", b"-", b"\\", b"QUI="])).map(
        b"".join
    ),
    st.lists(st.integers(0, 40), max_size=6),
)
@settings(derandomize=True, deadline=None, max_examples=500)
def test_the_cuts_make_no_difference(text: bytes, cuts: list[int]):
    assert verdict(text, cuts) == bool(GOOD.fullmatch(text))


@given(
    st.binary(min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=12),
    st.integers(0, 39),
    st.sampled_from([b"-", b"=", b"\\"]),
)
@settings(derandomize=True, deadline=None, max_examples=1000)
def test_what_is_known_is_skipped_and_nothing_else(
    data: bytes, steps: list[tuple[int, bool]], place: int, wrong: bytes
):
    good = base64.b64encode(data)
    place = min(place, len(good) - 1)
    spoilt = good[:place] + wrong + good[place + 1 :]
    for text in (good, spoilt):
        check, at, is_seen = Base64Check(), 0, False
        for size, is_known in [*steps, (len(text), False)]:
            piece = memoryview(text)[at : at + size]
            if is_known:
                check.skip(piece)
            else:
                check.feed(piece)
                is_seen = is_seen or at <= place < at + size
            at += size
        if text is good:
            assert check.finish()
        elif is_seen:
            assert check.finish() == bool(GOOD.fullmatch(spoilt))


def test_characters_before_the_known_ones_are_checked():
    check = Base64Check()
    check.feed(memoryview(b"-"))
    check.skip(memoryview(b"AAAAAAA"))
    assert not check.finish()


def test_nothing_known_comes_after_padding():
    check = Base64Check()
    check.feed(memoryview(b"QQ=="))
    check.skip(memoryview(b"QUJD"))
    assert not check.finish()


def test_known_text_that_ends_the_earlier_one_must_end_this_one():
    for cut in range(9):
        check = Base64Check()
        check.skip(memoryview(b"QUJDQQ==")[:cut])
        check.skip(memoryview(b"QUJDQQ==")[cut:])
        check.feed(memoryview(b"QUJD"))
        assert not check.finish()


def test_known_text_is_not_looked_at():
    check = Base64Check()
    check.skip(memoryview(b"----" * 10))
    check.feed(memoryview(b"QUJD"))
    assert check.finish()


def test_a_bad_character_is_never_forgotten():
    for length in (4, 4096, 600_000):
        check = Base64Check()
        check.feed(memoryview(b"QUJD" * (length // 4)))
        assert check.finish()
        check.feed(memoryview(b"QU-D" + b"QUJD" * (length // 4)))
        check.feed(memoryview(b"QUJD"))
        check.skip(memoryview(b"QUJD"))
        assert not check.finish()


def test_padding_ends_the_text_across_steps_of_decoding():
    step = 192 * 1024
    check = Base64Check()
    check.feed(memoryview(b"QUJD" * (step // 4 - 1) + b"QUI=" + b"QUJD"))
    assert not check.finish()
