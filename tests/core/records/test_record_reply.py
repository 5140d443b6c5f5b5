import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.responses import Response

from sessions.core.http_exchange.client_request import ClientRequest
from sessions.core.records.record import Record
from sessions.core.records.record_query import RecordQuery, parse_record_query
from sessions.core.records.record_reply import etag_of, records_reply_of
from sessions.core.records.record_stream import pin
from sessions.core.records.turnstile import Turnstile
from sessions.errors.protocol import PreconditionFailedError, RangeNotSatisfiableError
from sessions.replay.splice import SplicedText
from tests.support.desk import body_of
from tests.support.parts import FakeBlob

METADATA: dict[str, Any] = {"max_trim_tokens": 0}
BLOBS = [FakeBlob(b"QUJD" * 70), FakeBlob(b"REVG" * 80)]


def record_with(blob: FakeBlob) -> Record:
    text = SplicedText(parts=(b'{"routed_experts":"', blob, b'"}'))
    return Record(
        facts={"path": b'"/p"'}, request=(b'{"x":1}',), response=text, raw_response=text, status=200
    )


RECORDS = [record_with(blob) for blob in BLOBS]


async def gone() -> None:
    await asyncio.Event().wait()


async def reply_to(
    *headers: tuple[bytes, bytes],
    query: bytes = b"",
    is_head: bool = False,
    records: list[Record] | None = None,
) -> Response:
    wanted = parse_record_query(query)
    chosen = wanted.chosen(RECORDS if records is None else records)
    request = ClientRequest(
        method="GET", query=query, headers=headers, body=b"", wait_gone=gone, is_head=is_head
    )
    metadata = METADATA if wanted.has_metadata else None
    with pin(blob for record in chosen for blob in record.blobs_for(wanted)) as pins:
        return await records_reply_of(
            "s",
            chosen,
            metadata,
            query=wanted,
            request=request,
            pins=pins,
            turnstile=Turnstile(),
        )


async def test_a_whole_reply_has_its_length_its_tag_and_offers_ranges():
    reply = await reply_to()
    body = await body_of(reply)
    assert list(reply.headers) == ["content-type", "accept-ranges", "etag", "content-length"]
    assert (reply.status_code, reply.headers["accept-ranges"]) == (200, "bytes")
    assert reply.headers["content-length"] == str(len(body))
    read = json.loads(body)
    assert [r["response"]["routed_experts"] for r in read["records"]] == ["QUJD" * 70, "REVG" * 80]
    assert read["metadata"] == METADATA
    assert all(blob.pins == 0 for blob in BLOBS)


@given(first=st.integers(0, 1000), length=st.integers(1, 1000))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_every_range_is_the_slice_of_the_whole(first: int, length: int):
    async def check() -> None:
        whole = await body_of(await reply_to())
        start = first % len(whole)
        last = min(start + length, len(whole)) - 1
        part = await reply_to((b"range", b"bytes=%d-%d" % (start, start + length - 1)))
        assert part.status_code == 206
        assert await body_of(part) == whole[start : last + 1]
        assert part.headers["content-range"] == f"bytes {start}-{last}/{len(whole)}"
        assert part.headers["content-length"] == str(last + 1 - start)
        assert part.headers["content-type"] == "application/json"

    asyncio.run(check())
    assert all(blob.pins == 0 for blob in BLOBS)


async def test_the_parts_of_a_download_that_was_cut_make_the_whole():
    whole = await reply_to()
    tag, size = whole.headers["etag"].encode(), int(whole.headers["content-length"])
    got = b""
    while len(got) < size:
        asked = b"bytes=%d-%d" % (len(got), len(got) + 99)
        got += await body_of(await reply_to((b"range", asked), (b"if-range", tag)))
    assert got == await body_of(whole)


async def test_a_range_of_what_has_changed_meanwhile_gets_the_whole():
    old = await reply_to(records=RECORDS[:1])
    assert await body_of(old)
    tag = old.headers["etag"].encode()
    new = await reply_to((b"range", b"bytes=5-"), (b"if-range", tag))
    assert new.status_code == 200
    assert len(json.loads(await body_of(new))["records"]) == 2


async def test_an_unchanged_reply_is_not_sent_again():
    reply = await reply_to()
    assert await body_of(reply)
    same = await reply_to((b"if-none-match", reply.headers["etag"].encode()))
    assert same.status_code == 304
    assert dict(same.headers) == {"etag": reply.headers["etag"]}
    assert all(blob.pins == 0 for blob in BLOBS)


async def test_head_has_the_headers_of_get_and_reads_nothing():
    before = [blob.read_bytes for blob in BLOBS]
    head = await reply_to((b"range", b"bytes=1-2"), is_head=True)
    assert [blob.read_bytes for blob in BLOBS] == before
    assert all(blob.pins == 1 for blob in BLOBS)
    assert await body_of(head)  # ends the pins; who serves it as HEAD sends none of it
    get = await reply_to()
    assert await body_of(get)
    assert (head.status_code, head.raw_headers) == (200, get.raw_headers)


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ((b"range", b"bytes=100000-"), RangeNotSatisfiableError),
        ((b"if-match", b'"x"'), PreconditionFailedError),
    ],
)
async def test_a_refusal_leaves_nothing_pinned(header: tuple[bytes, bytes], error: type[Exception]):
    with pytest.raises(error):
        await reply_to(header)
    assert all(blob.pins == 0 for blob in BLOBS)


def test_another_reply_has_another_tag():
    queries = [b"", b"raw=1", b"replay=0", b"fields=records", b"fields=path", b"fields=method"]
    wanted = [parse_record_query(query) for query in queries]
    tags = [etag_of("s", RECORDS, b"{}" if query.has_metadata else None, query) for query in wanted]
    everything = RecordQuery()
    tags += [
        etag_of("t", RECORDS, b"{}", everything),
        etag_of("s", RECORDS[:1], b"{}", everything),
        etag_of("s", RECORDS[::-1], b"{}", everything),
        etag_of("s", [RECORDS[0], record_with(BLOBS[1])], b"{}", everything),
        etag_of("s", RECORDS, b'{"a":1}', everything),
    ]
    assert len(set(tags)) == len(tags)
    assert etag_of("s", list(RECORDS), b"{}", RecordQuery()) == tags[0]

    assert all(tag.startswith(b'"') and tag.endswith(b'"') for tag in tags)
