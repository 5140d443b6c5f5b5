from sessions.replay.blobs import ReplayBlob
from sessions.replay.memory_store import MemoryReplayStore


def read(blob: ReplayBlob) -> bytes:
    return blob.read(0, blob.size_bytes)


def test_a_blob_is_read_back_bit_for_bit():
    store = MemoryReplayStore()
    text = bytes(range(256))
    blob = store.put("s", memoryview(text))
    assert read(blob) == text
    assert blob.size_bytes == 256
    assert store.stored_bytes == 256


def test_a_stored_view_is_copied():
    store = MemoryReplayStore()
    text = bytearray(b"abc")
    blob = store.put("s", memoryview(text))
    text[:] = b"xyz"
    assert read(blob) == b"abc"


def test_a_blob_is_read_in_ranges_and_shows_its_ends():
    text = bytes(range(256)) * 2
    blob = MemoryReplayStore().put("s", text)
    assert blob.read_nowait(3, 7) == blob.read(3, 7) == text[3:7]
    assert (blob.head, blob.tail) == (text[:256], text[-4:])


def test_a_discarded_blob_is_not_counted_and_still_read_by_its_holder():
    store = MemoryReplayStore()
    kept, dropped = store.put("s", b"abc"), store.put("s", b"defg")
    store.discard("s", [dropped])
    store.discard("s", [dropped])
    assert store.stored_bytes == 3
    assert read(dropped) == b"defg"
    store.discard("s", [kept])
    assert store.stored_bytes == 0


def test_discarding_for_another_session_changes_nothing():
    store = MemoryReplayStore()
    blob = store.put("s", b"abc")
    store.discard("t", [blob])
    assert store.stored_bytes == 3


def test_a_dropped_session_frees_its_blobs_alone():
    store = MemoryReplayStore()
    blob = store.put("s", b"abc")
    store.put("t", b"de")
    store.drop_session("s")
    store.drop_session("s")
    assert store.stored_bytes == 2
    assert read(blob) == b"abc"
