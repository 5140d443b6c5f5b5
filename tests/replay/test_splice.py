import json

from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.replay.blobs import ReplayBlob
from sessions.replay.memory_store import MemoryBlob
from sessions.replay.splice import MIN_BLOB_BYTES, SplicedText, cut_blobs, find_blobs, size_of

BLOB = "QUJD" * 100
OTHER = BLOB + "EEEE"


def cut(text: bytes, blobs: list[str]) -> tuple[SplicedText, int]:
    stored: list[bytes] = []

    def keep(blob: memoryview) -> ReplayBlob:
        stored.append(bytes(blob))
        return MemoryBlob(stored[-1])

    return cut_blobs(text, blobs, keep), len(stored)


def joined(text: SplicedText) -> bytes:
    return b"".join(
        part if isinstance(part, bytes) else part.read(0, part.size_bytes) for part in text.parts
    )


def test_a_blob_is_cut_out_and_put_back():
    text = json.dumps({"a": {"routed_experts": BLOB}, "z": "é"}).encode()
    spliced, stored = cut(text, [BLOB])
    assert joined(spliced) == text
    assert stored == 1
    assert spliced.size_bytes == len(text)
    assert sum(len(part) for part in spliced.parts if isinstance(part, bytes)) == len(text) - len(
        BLOB
    )


def test_a_blob_that_stands_twice_is_stored_once():
    text = json.dumps([BLOB, OTHER, BLOB]).encode()
    spliced, stored = cut(text, [BLOB, OTHER])
    assert joined(spliced) == text
    assert stored == 2
    assert [blob.size_bytes for blob in spliced.blobs] == [400, 404, 400]


def test_a_blob_that_begins_another_is_not_found_in_it():
    text = json.dumps([OTHER]).encode()
    assert find_blobs(text, [BLOB]) == []


def test_a_blob_within_a_text_is_no_string_of_its_own():
    text = json.dumps({"content": f"see {BLOB} there"}).encode()
    assert find_blobs(text, [BLOB]) == []


def test_blobs_that_are_written_in_another_way_stay_in_the_text():
    escaped = json.dumps({"a": BLOB}).replace("Q", "\\u0051").encode()
    spliced, stored = cut(escaped, [BLOB])
    assert (joined(spliced), stored) == (escaped, 0)


def test_short_blobs_stay_in_the_text():
    short = "A" * (MIN_BLOB_BYTES - 1)
    text = json.dumps([short, short + "A"]).encode()
    assert find_blobs(text, [short]) == []
    assert len(find_blobs(text, [short + "A"])) == 1


def test_a_blob_that_is_not_ascii_stays_in_the_text():
    text = json.dumps(["é" * 400], ensure_ascii=False).encode()
    assert find_blobs(text, ["é" * 400]) == []


@given(st.lists(st.sampled_from([BLOB, OTHER, "x", "\\", '"']), max_size=8))
@settings(derandomize=True, deadline=None)
def test_what_is_cut_out_comes_back_whatever_the_text(parts: list[str]):
    text = json.dumps(parts).encode()
    spliced, _ = cut(text, parts)
    assert joined(spliced) == text
    assert len(spliced.blobs) == sum(part in (BLOB, OTHER) for part in parts)
    nulls = [None if part in (BLOB, OTHER) else part for part in parts]
    without = list(spliced.with_nulls())
    assert b"".join(without) == json.dumps(nulls).encode()
    assert sum(map(size_of, without)) == len(b"".join(without))
