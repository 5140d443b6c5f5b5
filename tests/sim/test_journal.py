"""The journal: bounded, oldest first, ids shortened."""

from typing import Any

from sessions.sim.journal import Journal


def add(journal: Journal, body: dict[str, Any] | None = None, body_bytes: int = 10) -> None:
    journal.add(
        headers=[(b"x-a", b"1"), (b"x-a", b"\xfc")],
        query=b"q=1",
        body=body or {},
        body_bytes=body_bytes,
    )


def test_requests_are_kept_as_they_were():
    journal = Journal(2)
    add(journal, {"messages": [{"role": "user"}], "input_ids": [1, 2]})
    (entry,) = journal.entries
    assert entry.headers == [("x-a", "1"), ("x-a", "\xfc")]
    assert entry.query == "q=1"
    assert entry.body == {"messages": [{"role": "user"}], "input_ids": [1, 2]}


def test_the_oldest_go_when_there_are_too_many():
    journal = Journal(2)
    for _ in range(3):
        add(journal)
    assert [entry.number for entry in journal.entries] == [2, 3]
    assert journal.seen_count == 3


def test_the_oldest_go_when_there_are_too_many_bytes():
    journal = Journal(10)
    half = 8 << 20
    add(journal, body_bytes=half)
    add(journal, body_bytes=half)
    assert len(journal.entries) == 2
    add(journal, body_bytes=1)
    assert [entry.number for entry in journal.entries] == [2, 3]
    add(journal, body_bytes=100 << 20)
    assert [entry.number for entry in journal.entries] == [4]


def test_long_lists_of_ids_are_shortened():
    journal = Journal(1)
    messages = [{"role": "user"}] * 65
    add(journal, {"input_ids": list(range(65)), "short": list(range(64)), "messages": messages})
    (entry,) = journal.entries
    assert entry.body["input_ids"] == {
        "count": 65,
        "first": list(range(8)),
        "last": list(range(57, 65)),
    }
    assert entry.body["short"] == list(range(64))
    assert entry.body["messages"] == messages


def test_a_journal_of_none_counts_only():
    journal = Journal(0)
    add(journal)
    assert (journal.entries, journal.seen_count) == ([], 1)


def test_a_cleared_journal_starts_anew():
    journal = Journal(3)
    add(journal, body_bytes=16 << 20)
    journal.clear()
    assert (journal.entries, journal.seen_count) == ([], 0)
    add(journal, body_bytes=8 << 20)
    add(journal, body_bytes=8 << 20)
    assert [entry.number for entry in journal.entries] == [1, 2]
