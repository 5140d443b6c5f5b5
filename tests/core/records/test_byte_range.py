import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.records.byte_range import Answer, parse_range, select
from sessions.errors.protocol import PreconditionFailedError, RangeNotSatisfiableError

ETAG = b'"a,b"'
OTHER = b'"c"'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"bytes=0-0", (0, 1)),
        (b"bytes=0-99", (0, 100)),
        (b"bytes=5-", (5, 100)),
        (b"bytes=99-", (99, 100)),
        (b"bytes=90-1000", (90, 100)),
        (b"bytes=90-" + b"9" * 5000, (90, 100)),
        (b"bytes=-1", (99, 100)),
        (b"bytes=-100", (0, 100)),
        (b"bytes=-101", (0, 100)),
        (b"bytes=-" + b"9" * 5000, (0, 100)),
        (b"bytes=" + b"0" * 5000 + b"5-6", (5, 7)),
        (b"BYTES=1-2", (1, 3)),
        (b"bytes= 1-2 ", (1, 3)),
        (b"bytes=1 - 2", (1, 3)),
        (b"bytes=,1-2,", (1, 3)),
    ],
)
def test_a_range_is_read(text: bytes, found: tuple[int, int]):
    assert parse_range(text, 100) == found


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"bytes",
        b"bytes=",
        b"bytes=,",
        b"bytes=-",
        b"bytes=x",
        b"bytes=1",
        b"bytes=2-1",
        b"bytes=1-2,4-5",
        b"bytes=1-2,200-",
        b"bytes=--1",
        b"bytes=1-2-3",
        b"bytes=+1-2",
        b"bytes=0x1-2",
        b"bytes=\xb2-3",
        b"lines=1-2",
        b"bytes =1-2",
    ],
)
def test_what_is_no_single_range_gets_the_whole(text: bytes):
    assert parse_range(text, 100) is None


@pytest.mark.parametrize(
    "text", [b"bytes=100-", b"bytes=100-200", b"bytes=-0", b"bytes=" + b"9" * 5000 + b"-"]
)
def test_a_range_without_a_byte_is_refused_with_the_size(text: bytes):
    with pytest.raises(RangeNotSatisfiableError) as caught:
        parse_range(text, 100)
    assert ("content-range", "bytes */100") in caught.value.headers
    assert len(caught.value.message) < 200


def selected(*headers: tuple[bytes, bytes], is_head: bool = False) -> tuple[Answer, int, int]:
    found = select(headers, etag=ETAG, size_bytes=100, is_head=is_head)
    return found.answer, found.start, found.stop


WHOLE = (Answer.WHOLE, 0, 100)
PART = (Answer.PART, 1, 3)
UNCHANGED = (Answer.UNCHANGED, 0, 0)
RANGE = (b"range", b"bytes=1-2")


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ([], WHOLE),
        ([RANGE], PART),
        ([RANGE, RANGE], WHOLE),
        ([RANGE, (b"if-range", ETAG)], PART),
        ([RANGE, (b"if-range", OTHER)], WHOLE),
        ([RANGE, (b"if-range", b"W/" + ETAG)], WHOLE),
        ([RANGE, (b"if-range", b"Mon, 30 Nov 2026 07:00:00 GMT")], WHOLE),
        ([(b"if-range", OTHER), (b"range", b"bytes=100-")], WHOLE),
        ([(b"if-none-match", ETAG), RANGE], UNCHANGED),
        ([(b"if-none-match", b"W/" + ETAG)], UNCHANGED),
        ([(b"if-none-match", OTHER + b", " + ETAG)], UNCHANGED),
        ([(b"if-none-match", OTHER), (b"if-none-match", ETAG)], UNCHANGED),
        ([(b"if-none-match", b"*")], UNCHANGED),
        ([(b"if-none-match", OTHER), RANGE], PART),
        ([(b"if-none-match", b"a,b")], WHOLE),
        ([(b"if-match", ETAG), RANGE], PART),
        ([(b"if-match", b"*")], WHOLE),
    ],
)
def test_headers_decide(headers: list[tuple[bytes, bytes]], found: tuple[Answer, int, int]):
    assert selected(*headers) == found


@pytest.mark.parametrize("tags", [OTHER, b"W/" + ETAG, b"", b"a"])
def test_a_condition_that_does_not_hold_is_a_refusal(tags: bytes):
    with pytest.raises(PreconditionFailedError):
        selected((b"if-match", tags), (b"if-none-match", ETAG))


def test_head_has_no_ranges():
    assert selected(RANGE, is_head=True) == WHOLE
    assert selected((b"range", b"bytes=100-"), is_head=True) == WHOLE


@given(st.binary(max_size=30), st.integers(1, 50))
@settings(derandomize=True, deadline=None)
def test_whatever_is_asked_for_a_range_lies_within(text: bytes, size: int):
    try:
        found = parse_range(b"bytes=" + text, size)
    except RangeNotSatisfiableError:
        return
    assert found is None or 0 <= found[0] < found[1] <= size
