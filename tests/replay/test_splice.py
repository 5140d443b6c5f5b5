import json

from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.replay.blobs import ReplayBlob
from sessions.replay.splice import SplicedText, size_of
from sessions.replay.taken import InlineBlob

BLOB = b"QUJD" * 100


def joined(text: SplicedText) -> bytes:
    return b"".join(
        part if isinstance(part, bytes) else part.read(0, part.size_bytes) for part in text.parts
    )


def spliced(texts: list[str | None]) -> SplicedText:
    """A JSON array of texts, a stored blob for each None."""
    parts: list[bytes | ReplayBlob] = []
    text = b"["
    for index, item in enumerate(texts):
        text += b", " if index else b""
        if item is None:
            parts += [text + b'"', InlineBlob(BLOB)]
            text = b'"'
        else:
            text += json.dumps(item).encode()
    return SplicedText(parts=(*parts, text + b"]"))


def test_a_text_knows_its_size_and_its_blobs_without_being_joined():
    text = spliced(["a", None, "b", None])
    assert len(text.blobs) == 2
    assert text.size_bytes == len(joined(text))
    assert json.loads(joined(text)) == ["a", BLOB.decode(), "b", BLOB.decode()]


@given(st.lists(st.sampled_from([None, "x", "\\", '"', ""]), max_size=8))
@settings(derandomize=True, deadline=None)
def test_null_stands_for_every_blob_that_is_left_out(texts: list[str | None]):
    without = list(spliced(texts).with_nulls())
    assert b"".join(without) == json.dumps(texts).encode()
    assert sum(map(size_of, without)) == len(b"".join(without))
