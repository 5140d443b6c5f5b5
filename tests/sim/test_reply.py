"""Bodies: blobs are spliced into the text where they stood, and the length is right."""

import json
import math

import pytest

from sessions.sim.experts import PIECE_BYTES, Layout
from sessions.sim.reply import Body, render

LAYOUT = Layout(layers=3, topk=2, experts=128, seed=0, pad=1)


def bytes_of(body: Body) -> bytes:
    return b"".join(body.pieces())


def test_blobs_stand_where_the_document_has_them():
    first, second = LAYOUT.blob([1, 2, 3]), LAYOUT.blob([])
    body = render({"a": first, "b": [second, {"c": first}], "d": "ü"})
    raw = bytes_of(body)
    assert len(body) == len(raw)
    text = b"".join(first.pieces()).decode()
    assert json.loads(raw) == {"a": text, "b": ["", {"c": text}], "d": "ü"}


def test_a_document_without_blobs_is_plain_json():
    assert bytes_of(render({"a": 1})) == b'{"a":1}'


def test_pieces_of_a_long_text_are_limited():
    body = render({"a": "x" * (3 * PIECE_BYTES)})
    sizes = [len(piece) for piece in body.pieces()]
    assert sum(sizes) == len(body)
    assert max(sizes) == PIECE_BYTES


def test_loosely_written_documents_keep_what_json_has_not():
    blob = LAYOUT.blob([1])
    raw = bytes_of(render({"a": math.nan, "b": "\ud83d", "c": blob}, loosely=True))
    assert raw.startswith(b'{"a":NaN,"b":"\\ud83d","c":"')
    assert raw.endswith(b"".join(blob.pieces()) + b'"}')


@pytest.mark.parametrize("loosely", [False, True])
def test_what_is_no_json_is_an_error(*, loosely: bool):
    with pytest.raises(TypeError):
        render({"a": object()}, loosely=loosely)
