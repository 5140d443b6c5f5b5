import json

import pytest

from sessions.core.record_query import RECORD_MEMBERS, RecordQuery, parse_record_query
from sessions.core.records import Record, make_record, session_parts
from sessions.replay.memory_store import MemoryReplayStore
from tests.support.parts import text_of

BLOB = "QUJD" * 200
RAW = json.dumps({"a": {"routed_experts": BLOB}, "sglext": {"routed_experts": BLOB}}).encode()
ALL = RecordQuery()


def record_of(store: MemoryReplayStore, raw: bytes = RAW, strict: bytes | None = None) -> Record:
    return make_record(
        facts={"timestamp": 2.5, "request_timestamp": 1.5, "method": "POST", "path": "/p"},
        request=b'{"input_ids":[1]}',
        status=200,
        raw=raw,
        strict=raw if strict is None else strict,
        blobs=[BLOB],
        keep=lambda blob: store.put("s", blob),
    )


def test_a_record_has_its_members_in_order_and_the_reply_byte_for_byte():
    text = text_of(record_of(MemoryReplayStore()).parts(ALL))
    assert tuple(json.loads(text)) == RECORD_MEMBERS
    assert RAW in text
    assert json.loads(text)["request"] == {"input_ids": [1]}
    assert json.loads(text)["status_code"] == 200


def test_a_blob_that_stands_twice_is_stored_once():
    store = MemoryReplayStore()
    record = record_of(store)
    assert store.stored_bytes == len(BLOB)
    assert record.blobs == [record.blobs[0]] * 2


def test_the_engines_own_bytes_are_kept_when_they_are_not_strict():
    raw, strict = RAW[:-1] + b',"p":NaN}', RAW[:-1] + b',"p":null}'
    record = record_of(MemoryReplayStore(), raw, strict)
    assert strict in text_of(record.parts(ALL))
    assert raw in text_of(record.parts(RecordQuery(is_raw=True)))
    assert len(record.blobs) == 4
    assert record.blobs_for(ALL) == record.blobs[:2]
    assert record.blobs_for(RecordQuery(is_raw=True)) == record.blobs[2:]


@pytest.mark.parametrize("member", RECORD_MEMBERS)
def test_a_single_member_is_read_alone(member: str):
    record = record_of(MemoryReplayStore())
    query = RecordQuery(members=frozenset({member}))
    whole = json.loads(text_of(record.parts(ALL)))
    assert json.loads(text_of(record.parts(query))) == {member: whole[member]}
    assert record.blobs_for(query) == (record.blobs if member == "response" else [])


def test_replay_is_null_where_it_is_not_wanted_and_no_blob_is_read():
    record = record_of(MemoryReplayStore())
    query = RecordQuery(has_replay=False)
    empty = {"routed_experts": None}
    response = json.loads(text_of(record.parts(query)))["response"]
    assert response == {"a": empty, "sglext": empty}
    assert record.blobs_for(query) == []


def test_records_have_tags_of_their_own():
    store = MemoryReplayStore()
    assert record_of(store).tag != record_of(store).tag


def test_an_empty_session_reads_as_documented():
    metadata = b'{"accumulated_token_ids":[],"max_trim_tokens":0}'
    assert text_of(session_parts("s", [], metadata, ALL)) == (
        b'{"session_id":"s","records":[],"metadata":{"accumulated_token_ids":[],"max_trim_tokens":0}}'
    )


def test_a_session_reads_its_records_in_order():
    store = MemoryReplayStore()
    records = [record_of(store, raw) for raw in (b'{"n":1}', b'{"n":2}', b'{"n":3}')]
    read = json.loads(text_of(session_parts("s", records, b"{}", ALL)))
    assert [record["response"]["n"] for record in read["records"]] == [1, 2, 3]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (b"fields=metadata", {"session_id": "s", "metadata": {}}),
        (b"fields=status_code", {"session_id": "s", "records": [{"status_code": 200}] * 2}),
        (
            b"fields=method,metadata",
            {"session_id": "s", "records": [{"method": "POST"}] * 2, "metadata": {}},
        ),
    ],
)
def test_members_that_are_not_wanted_are_left_out(query: bytes, found: object):
    store = MemoryReplayStore()
    wanted = parse_record_query(query)
    metadata = b"{}" if wanted.has_metadata else None
    parts = session_parts("s", [record_of(store)] * 2, metadata, wanted)
    assert json.loads(text_of(parts)) == found


def test_parts_stay_readable_when_the_session_is_dropped_meanwhile():
    store = MemoryReplayStore()
    parts = list(session_parts("s", [record_of(store)], b"{}", ALL))
    store.drop_session("s")
    assert store.stored_bytes == 0
    assert RAW in text_of(parts)
