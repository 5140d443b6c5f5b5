import json
import tracemalloc

import pytest

from sessions.core.records.record import Record, make_record, render_facts, session_parts
from sessions.core.records.record_query import RECORD_MEMBERS, RecordQuery, parse_record_query
from sessions.core.texts.json_text import JsonObject
from sessions.replay.blobs import ReplayStore
from sessions.replay.file_store import open_replay_store
from tests.support.parts import text_of
from tests.support.taken import taken_reply_of

BLOB = "QUJD" * 200
RAW = json.dumps({"a": {"routed_experts": BLOB}, "sglext": {"routed_experts": BLOB}}).encode()
ALL = RecordQuery()


async def record_of(store: ReplayStore, raw: bytes = RAW) -> Record:
    return make_record(
        facts={
            "timestamp": 2.5,
            "request_timestamp": 1.5,
            "method": "POST",
            "path": "/p",
            "finish_reason": "length",
            "partial": True,
            "weight_version": "v1",
            "node": {"id": "n0", "parent": None, "seq": 0},
            "replay_error": "what is wrong",
        },
        request=(b'{"input_ids":', b"[1]}"),
        status=200,
        reply=await taken_reply_of(store, raw),
    )


async def test_a_record_has_its_members_in_order_and_the_reply_byte_for_byte():
    text = text_of((await record_of(open_replay_store(""))).parts(ALL))
    assert tuple(json.loads(text)) == RECORD_MEMBERS
    assert RAW in text
    assert json.loads(text)["request"] == {"input_ids": [1]}
    assert json.loads(text)["status_code"] == 200


async def test_a_blob_that_stands_twice_is_stored_once():
    store = open_replay_store("")
    record = await record_of(store)
    assert len(BLOB) <= store.stored_bytes <= len(BLOB) + 8  # each copy has its own last characters
    assert [blob.size_bytes for blob in record.blobs_for(ALL)] == [len(BLOB)] * 2


async def test_the_engines_own_bytes_are_kept_when_they_are_not_strict():
    raw = RAW[:-1] + b',"p":NaN}'
    store = open_replay_store("")
    record = await record_of(store, raw)
    strict = json.dumps({**json.loads(RAW), "p": None}, separators=(",", ":")).encode()
    assert strict in text_of(record.parts(ALL))
    assert raw in text_of(record.parts(RecordQuery(is_raw=True)))
    assert len(BLOB) <= store.stored_bytes <= len(BLOB) + 8
    assert record.blobs_for(ALL) == record.blobs_for(RecordQuery(is_raw=True))


@pytest.mark.parametrize("member", RECORD_MEMBERS)
async def test_a_single_member_is_read_alone(member: str):
    record = await record_of(open_replay_store(""))
    query = RecordQuery(members=frozenset({member}))
    whole = json.loads(text_of(record.parts(ALL)))
    assert json.loads(text_of(record.parts(query))) == {member: whole[member]}
    assert record.blobs_for(query) == (record.blobs if member == "response" else [])


async def test_replay_is_null_where_it_is_not_wanted_and_no_blob_is_read():
    record = await record_of(open_replay_store(""))
    query = RecordQuery(has_replay=False)
    empty = {"routed_experts": None}
    response = json.loads(text_of(record.parts(query)))["response"]
    assert response == {"a": empty, "sglext": empty}
    assert record.blobs_for(query) == []


async def test_records_have_tags_of_their_own():
    store = open_replay_store("")
    assert (await record_of(store)).tag != (await record_of(store)).tag


def test_an_empty_session_reads_as_documented():
    metadata = b'{"accumulated_token_ids":[],"max_trim_tokens":0}'
    assert text_of(session_parts("s", [], metadata, ALL)) == (
        b'{"session_id":"s","records":[],"metadata":{"accumulated_token_ids":[],"max_trim_tokens":0}}'
    )


async def test_a_session_reads_its_records_in_order():
    store = open_replay_store("")
    records = [await record_of(store, raw) for raw in (b'{"n":1}', b'{"n":2}', b'{"n":3}')]
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
async def test_members_that_are_not_wanted_are_left_out(query: bytes, found: object):
    store = open_replay_store("")
    wanted = parse_record_query(query)
    metadata = b"{}" if wanted.has_metadata else None
    parts = session_parts("s", [await record_of(store)] * 2, metadata, wanted)
    assert json.loads(text_of(parts)) == found


def test_the_small_members_of_a_record_take_little_memory():
    facts: JsonObject = {f"fact {number}": number for number in range(100)}
    render_facts(facts)  # what is made once, is
    tracemalloc.start()
    try:
        kept = render_facts(facts)
        size_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == len(facts)
    assert size_bytes < 300 * len(facts)
