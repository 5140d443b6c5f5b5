import pytest

from sessions.core.attempts.retry_marks import RetryMarks, marks_of

PLAIN = marks_of([], b"{}")


def test_equal_bodies_have_one_digest_and_others_another():
    assert marks_of([], b"{}") == PLAIN
    assert marks_of([], b"{ }").digest != PLAIN.digest
    assert (PLAIN.key, PLAIN.is_counted) == (b"", False)


@pytest.mark.parametrize(
    ("count", "is_counted"),
    [
        (b"0", False),
        (b"00", False),
        (b"1", True),
        (b" 2 ", True),
        (b"10", True),
        (b"", False),
        (b"-1", False),
        (b"1.5", False),
        (b"one", False),
        ("\u0661".encode(), False),
    ],
)
def test_an_attempt_is_counted_from_one_on(count: bytes, *, is_counted: bool):
    assert marks_of([(b"x-stainless-retry-count", count)], b"").is_counted is is_counted


def test_a_key_is_itself_without_the_white_space_around_it():
    first, second, other = [
        marks_of([(b"idempotency-key", key)], b"") for key in (b"a", b" a\t", b"b")
    ]
    assert first == second
    assert first.key
    assert other.key != first.key


def test_an_empty_key_is_none():
    assert marks_of([(b"idempotency-key", b" ")], b"{}") == PLAIN


def test_of_repeated_headers_the_first_counts():
    headers = [(b"x-stainless-retry-count", b"1"), (b"x-stainless-retry-count", b"0")]
    assert marks_of(headers, b"{}") == RetryMarks(digest=PLAIN.digest, is_counted=True)


def test_what_is_kept_of_a_request_is_small_whatever_it_was():
    marks = marks_of([(b"idempotency-key", b"k" * 60000)], b"x" * 1_000_000)
    assert len(marks.key) == len(marks.digest) == 16


def test_the_same_bytes_in_two_forms_are_not_the_same_request():
    assert marks_of([], b"{}", "messages").digest != marks_of([], b"{}", "chat").digest
