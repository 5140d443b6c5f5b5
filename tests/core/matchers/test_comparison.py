import pytest

from sessions.core.matchers.comparison import compare
from sessions.core.texts.json_text import Json


@pytest.mark.parametrize(
    ("stored", "sent", "path"),
    [
        (1, 1.0, "x"),
        (1, True, "x"),
        ({"a": 1}, {"a": 1, "b": 2}, "x.b"),
        ({"a": 1, "b": 2}, {"b": 2}, "x.a"),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "x.a[1].b"),
        ([1], [1, 2], "x"),
        ([], {}, "x"),
        (None, [], "x"),
    ],
)
def test_the_first_place_that_differs_is_named(stored: Json, sent: Json, path: str):
    found = compare("x", stored, sent)
    assert found is not None
    assert found.path == path


def test_the_order_of_members_does_not_count():
    assert compare("x", {"a": 1, "b": [None, "t"]}, {"b": [None, "t"], "a": 1}) is None


def test_the_number_of_entries_is_told_where_that_alone_differs():
    found = compare("x", [1], [1, 2])
    assert found is not None
    assert (found.stored, found.sent) == ("1 entries", "2 entries")


def test_long_texts_are_shown_from_where_they_part():
    same = "y" * 5000
    found = compare("content", same + "stored", same + "sent")
    assert found is not None
    assert "ystored" in found.stored
    assert "ysent" in found.sent
    assert len(found.stored) < 80


def test_a_value_is_shown_in_ascii_and_cut_to_one_short_line():
    found = compare("content", "é\n" * 500, None)
    assert found is not None
    assert found.stored.isascii()
    assert len(found.stored) <= 60
    assert found.sent == "nothing"
