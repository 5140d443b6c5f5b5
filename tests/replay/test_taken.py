from sessions.replay.taken import READ_BYTES, InlineBlob, TakenBlob, TakenText, parts_of
from tests.support.slow_store import SlowBlob, SlowStore


def taken(index: int, text: bytes) -> TakenBlob:
    blob = SlowBlob(SlowStore(), text)
    return TakenBlob(placeholder=f"place-{index:08d}", field="routed_experts", blob=blob)


ONE, TWO = taken(1, b"AAAA"), taken(2, b"BBBB")


def test_a_text_is_split_at_its_placeholders():
    parts = parts_of(b'["place-00000001","place-00000002"]', [ONE, TWO])
    assert parts == (b'["', ONE.blob, b'","', TWO.blob, b'"]')


def test_the_order_of_the_text_counts():
    parts = parts_of(b'["place-00000002","place-00000001","x"]', [ONE, TWO])
    assert parts == (b'["', TWO.blob, b'","', ONE.blob, b'","x"]')


def test_a_placeholder_that_is_not_there_is_left_out():
    assert parts_of(b"place-00000002", [ONE, TWO]) == (TWO.blob,)
    assert parts_of(b"{}", [ONE, TWO]) == (b"{}",)
    assert parts_of(b"", []) == ()


def test_a_reply_is_put_together_again_blobs_longer_than_a_read_as_well():
    long = taken(3, bytes(range(256)) * (READ_BYTES // 256) + b"end")
    text = TakenText(text=b'{"a":"place-00000003","b":"place-00000001"}', blobs=(long, ONE))
    assert text.restore() == b'{"a":"' + long.blob.read(0, long.blob.size_bytes) + b'","b":"AAAA"}'


def test_a_blob_in_memory_reads_as_any_other():
    blob = InlineBlob(b"0123456789" * 30)
    blob.pin()
    blob.unpin()
    assert (blob.size_bytes, blob.head, blob.tail) == (300, (b"0123456789" * 30)[:256], b"6789")
    assert blob.read(1, 4) == blob.read_nowait(1, 4) == b"123"
