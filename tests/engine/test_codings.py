import gzip
import random
import zlib
from collections.abc import Callable, Iterable

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.engine.codings import PIECE_BYTES, Decoder, decoder_of
from sessions.errors.engine import EngineReplyUnusableError


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def streamed_zstd(data: bytes) -> bytes:
    packer = zstandard.ZstdCompressor().compressobj()  # a frame that does not tell its size
    return packer.compress(data) + packer.flush()


PACKED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("X-GZip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "zstd": ("zstd", zstd),
    "streamed zstd": ("zstd", streamed_zstd),
}
TEXT = b"".join(b"%d " % n for n in range(400)) + random.Random(1).randbytes(600)


def decoder(name: str) -> Decoder:
    made = decoder_of(PACKED[name][0])
    assert made is not None
    return made


def drained(made: Decoder) -> bytes:
    found = b""
    while piece := made.next_piece():
        assert len(piece) <= PIECE_BYTES
        found += piece
    return found


def decoded(made: Decoder, pieces: Iterable[bytes]) -> bytes:
    found = b""
    for piece in pieces:
        made.feed(memoryview(piece))
        found += drained(made)
    made.end()
    return found


def bytewise(raw: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in raw]


@pytest.mark.parametrize("name", PACKED)
def test_what_was_packed_comes_out_wherever_it_is_cut(name: str):
    raw = PACKED[name][1](TEXT)
    for cut in range(len(raw)):
        assert decoded(decoder(name), filter(None, [raw[:cut], raw[cut:]])) == TEXT
    assert decoded(decoder(name), bytewise(raw)) == TEXT


@pytest.mark.parametrize("name", PACKED)
def test_a_stream_that_is_cut_is_refused_at_every_byte(name: str):
    raw = PACKED[name][1](TEXT)
    for cut in range(1, len(raw)):
        with pytest.raises(EngineReplyUnusableError, match="too early"):
            decoded(decoder(name), [raw[:cut]])


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
def test_a_stream_with_a_changed_byte_never_gives_another_body(name: str):
    raw = PACKED[name][1](TEXT)
    refused = 0
    for index in range(len(raw)):
        changed = raw[:index] + bytes([raw[index] ^ 0x55]) + raw[index + 1 :]
        try:
            assert decoded(decoder(name), [changed]) == TEXT  # a byte without a meaning
        except EngineReplyUnusableError:
            refused += 1
    assert refused > len(raw) * 0.9


@pytest.mark.parametrize("name", PACKED)
def test_what_is_no_stream_is_refused(name: str):
    for junk in (b"junkjunk", b"\0" * 50, b"\xff" * 50):
        with pytest.raises(EngineReplyUnusableError, match="decoded"):
            decoded(decoder(name), [junk])


@pytest.mark.parametrize("name", PACKED)
def test_a_body_of_no_bytes_needs_no_stream(name: str):
    assert decoded(decoder(name), []) == b""
    assert decoded(decoder(name), [PACKED[name][1](b"")]) == b""


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_several_streams_one_after_the_other_are_one_body(name: str):
    pack = PACKED[name][1]
    raw = pack(b"one ") + pack(b"") + pack(b"two")
    assert decoded(decoder(name), [raw]) == b"one two"
    assert decoded(decoder(name), bytewise(raw)) == b"one two"
    with pytest.raises(EngineReplyUnusableError):
        decoded(decoder(name), [raw + b"no stream"])


@pytest.mark.parametrize("name", PACKED)
def test_a_body_that_swells_comes_in_pieces_of_bounded_size(name: str):
    size = 8 << 20
    raw = PACKED[name][1](b"\0" * size)
    assert len(raw) < size / 100
    made = decoder(name)
    made.feed(memoryview(raw))
    assert len(drained(made)) == size
    made.end()


@pytest.mark.parametrize("is_dense", [False, True])
@pytest.mark.parametrize("name", PACKED)
def test_the_rest_of_what_was_lent_can_be_kept(name: str, *, is_dense: bool):
    data = random.Random(1).randbytes(1 << 20) if is_dense else b"\0" * (1 << 20)
    lent = bytearray(PACKED[name][1](data))
    made = decoder(name)
    made.feed(memoryview(lent))
    found = bytes(made.next_piece())
    made.keep_rest()
    lent[:] = b"\xee" * len(lent)
    assert 0 < len(found) < len(data)
    assert found + drained(made) == data
    made.end()


def test_a_zstd_window_larger_than_a_receiver_must_hold_is_refused():
    parameters = zstandard.ZstdCompressionParameters(window_log=24)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    raw = packer.compress(b"\0" * (1 << 20)) + packer.flush()
    with pytest.raises(EngineReplyUnusableError, match="decoded"):
        decoded(decoder("zstd"), [raw])


@pytest.mark.parametrize("coding", ["", "identity", " , Identity"])
def test_identity_needs_no_decoder(coding: str):
    assert decoder_of(coding) is None


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "compress", "zstd2"])
def test_a_coding_that_nobody_knows_is_refused(coding: str):
    with pytest.raises(EngineReplyUnusableError, match="nobody asked for"):
        decoder_of(coding)


@settings(derandomize=True, deadline=None)
@given(
    st.sampled_from(sorted(PACKED)),
    st.lists(st.one_of(st.binary(max_size=300), st.integers(0, 200_000)), max_size=5),
    st.integers(1, 5000),
)
def test_what_was_packed_is_what_is_read(name: str, parts: list[bytes | int], size: int):
    data = b"".join(part if isinstance(part, bytes) else b"ab" * part for part in parts)
    raw = PACKED[name][1](data)
    pieces = [raw[i : i + size] for i in range(0, len(raw), size)]
    assert decoded(decoder(name), pieces) == data
