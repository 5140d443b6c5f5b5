import json

from sessions.core.records import Record, make_record, session_pieces
from sessions.replay.memory_store import MemoryReplayStore

BLOB = "QUJD" * 200
RAW = json.dumps({"a": {"routed_experts": BLOB}, "sglext": {"routed_experts": BLOB}}).encode()


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


def text_of(pieces: list[memoryview]) -> bytes:
    return b"".join(pieces)


def test_a_record_has_its_members_in_order_and_the_reply_byte_for_byte():
    record = record_of(MemoryReplayStore())
    text = text_of(list(record.pieces(raw=False)))
    assert list(json.loads(text)) == [
        "timestamp",
        "request_timestamp",
        "method",
        "path",
        "request",
        "response",
        "status_code",
    ]
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
    assert strict in text_of(list(record.pieces(raw=False)))
    assert raw in text_of(list(record.pieces(raw=True)))
    assert len(record.blobs) == 4


def test_an_empty_session_reads_as_documented():
    metadata = {"accumulated_token_ids": [], "max_trim_tokens": 0}
    text = text_of(session_pieces("s", [], metadata, raw=False))
    assert text == (
        b'{"session_id":"s","records":[],"metadata":{"accumulated_token_ids":[],"max_trim_tokens":0}}'
    )


def test_a_session_reads_its_records_in_order():
    store = MemoryReplayStore()
    replies = [b'{"n":1}', b'{"n":2}', b'{"n":3}']
    records = [record_of(store, raw) for raw in replies]
    pieces = session_pieces("s", records, {}, raw=False)
    read = json.loads(text_of(pieces))
    assert [record["response"]["n"] for record in read["records"]] == [1, 2, 3]
    assert all(len(piece) for piece in pieces)


def test_pieces_stay_readable_when_the_session_is_dropped_meanwhile():
    store = MemoryReplayStore()
    pieces = session_pieces("s", [record_of(store)], {}, raw=False)
    store.drop_session("s")
    assert store.stored_bytes == 0
    assert RAW in text_of(pieces)
