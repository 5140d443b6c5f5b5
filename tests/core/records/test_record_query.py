import pytest

from sessions.core.records.record_query import RECORD_MEMBERS, RecordQuery, parse_record_query
from sessions.errors.client_visible import RequestError

TEN = list(range(10))


def test_no_query_wants_everything():
    query = parse_record_query(b"")
    assert query == RecordQuery()
    assert query.chosen(TEN) == TEN
    assert all(query.wants(member) for member in [*RECORD_MEMBERS, "of a later version"])


@pytest.mark.parametrize(
    ("turns", "chosen"),
    [
        ("0", [0]),
        ("3", [3]),
        ("9", [9]),
        ("10", []),
        ("2-5", [2, 3, 4, 5]),
        ("2-2", [2]),
        ("8-20", [8, 9]),
        ("20-30", []),
        ("7-", [7, 8, 9]),
        ("10-", []),
        ("-1", [9]),
        ("-3", [7, 8, 9]),
        ("-0", []),
        ("-99", TEN),
        ("0-", TEN),
        ("007", [7]),
        ("9" * 18, []),
    ],
)
def test_turns_choose_records(turns: str, chosen: list[int]):
    assert parse_record_query(f"turns={turns}".encode()).chosen(TEN) == chosen


@pytest.mark.parametrize(
    ("query", "members", "has_records", "has_metadata"),
    [
        ("fields=metadata", frozenset(), False, True),
        ("fields=records", None, True, False),
        ("fields=records,metadata", None, True, True),
        ("fields=records,method", None, True, False),
        ("fields=response", {"response"}, True, False),
        ("fields=request%2Cresponse", {"request", "response"}, True, False),
        ("fields=path,path,metadata", {"path"}, True, True),
    ],
)
def test_fields_choose_members(
    query: str, members: set[str] | None, *, has_records: bool, has_metadata: bool
):
    found = parse_record_query(query.encode())
    assert (found.members, found.has_records) == (members, has_records)
    assert found.has_metadata is has_metadata


def test_without_records_none_is_chosen():
    assert list(parse_record_query(b"fields=metadata&turns=1").chosen(TEN)) == []


def test_flags_are_read():
    assert parse_record_query(b"raw=1&replay=0") == RecordQuery(is_raw=True, has_replay=False)
    assert parse_record_query(b"raw=0&replay=1") == RecordQuery()


def test_other_parameters_are_ignored():
    assert parse_record_query(b"x=1&x=2&%ff=&turn=3&RAW=7") == RecordQuery()


@pytest.mark.parametrize(
    ("param", "values"),
    [
        (
            "turns",
            ["", "-", "x", "1-2-3", "5-2", "--1", "1,2", " 1", "+1", "%2B1", "1.0", "1" * 19],
        ),
        ("turns", ["%D9%A1", "1\n", "9" * 5000]),
        ("fields", ["", "x", "records,", ",", "Records", "request response", "session_id"]),
        ("raw", ["", "2", "true", "01"]),
        ("replay", ["", "no", "10"]),
    ],
)
def test_a_malformed_parameter_is_refused_by_name(param: str, values: list[str]):
    for value in values:
        with pytest.raises(RequestError) as caught:
            parse_record_query(f"{param}={value}".encode())
        assert caught.value.param == param
        assert param in caught.value.message
        assert len(caught.value.message) < 250


@pytest.mark.parametrize("param", ["turns=1", "fields=path", "raw=1", "replay=1"])
def test_a_parameter_that_stands_twice_is_refused(param: str):
    with pytest.raises(RequestError) as caught:
        parse_record_query(f"{param}&{param}".encode())
    assert caught.value.param == param.partition("=")[0]
