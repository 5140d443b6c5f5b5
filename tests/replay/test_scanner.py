import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.replay.scanner import REPLAY_FIELDS, TextScanner
from sessions.replay.splice import MIN_BLOB_BYTES

BLOB = "QUJD" * 100
Span = tuple[str, bytes]


def spans_of(text: bytes, sizes: list[int]) -> list[Span]:
    """("", text) and (field, blob) in turn, the text fed in pieces of some sizes."""
    scanner = TextScanner()
    spans: list[Span] = []
    blob, field, done, at, index = b"", "", 0, 0, 0
    while at < len(text):
        size = sizes[index % len(sizes)] if sizes else len(text)
        left = memoryview(text)[at : at + size]
        at, index = at + size, index + 1
        while len(left):
            if not field:
                start = scanner.feed(left)
                if start is None:
                    break
                assert len(start.head) < MIN_BLOB_BYTES
                spans.append(("", bytes(scanner.text[done:])))
                done = len(scanner.text)
                field, blob, left = start.field, start.head, left[start.offset :]
            quote = bytes(left).find(b'"')
            blob += left if quote < 0 else left[:quote]
            left = left[quote:] if quote >= 0 else left[:0]
            if quote >= 0:
                spans.append((field, blob))
                field = ""
    spans.append((field, blob) if field else ("", bytes(scanner.text[done:])))
    return spans


def blobs_of(text: bytes, sizes: list[int]) -> list[Span]:
    spans = spans_of(text, sizes)
    assert b"".join(span for _, span in spans) == text
    return [span for span in spans if span[0]]


@pytest.mark.parametrize(
    "text",
    [
        '{"routed_experts":"%s"}',
        '{"a":1,"routed_experts":"%s","b":2}',
        '{"a":1, "routed_experts" \n:\t\r "%s"}',
        '{"choices":[{"meta_info":{"x":{},\n"routed_experts": "%s"}}]}',
        '{\t"routed_experts":"%s',
        '{\r"routed_experts":"%s"',
    ],
)
@pytest.mark.parametrize("field", REPLAY_FIELDS)
def test_a_blob_is_found_however_the_text_arrives(text: str, field: str):
    whole = (text.replace("routed_experts", field) % BLOB).encode()
    for size in (*range(1, 40), 255, 256, 257, 400, len(whole)):
        assert blobs_of(whole, [size]) == [(field, BLOB.encode())]


@pytest.mark.parametrize(
    "text",
    [
        '"routed_experts":"%s"',  # a text cannot begin so
        'x"routed_experts":"%s"',
        '{"a":"\\"routed_experts\\":\\"%s"}',
        '{"a":"\\"routed_experts":"%s"}',
        '{"a":"routed_experts","%s":1}',
        '{"routed_experts":["%s"]}',
        '{"routed_experts":null,"a":"%s"}',
        '{"routed_experts":1,"a":"%s"}',
        '{"routed_experts" "%s"}',
        '{"routed_experts"::"%s"}',
        '{"routed_expert":"%s"}',
        '{"routed_experts2":"%s"}',
        '{"Routed_experts":"%s"}',
    ],
)
def test_what_only_looks_like_a_blob_stays_text(text: str):
    whole = (text % BLOB).encode()
    for size in (1, 7, 100, len(whole)):
        assert blobs_of(whole, [size]) == []


def test_short_values_stay_text_and_long_ones_after_them_do_not():
    short, long = "A" * (MIN_BLOB_BYTES - 1), "A" * MIN_BLOB_BYTES
    text = json.dumps([{"routed_experts": short, "indexer_topk": long}]).encode()
    for size in (1, 50, 255, 256, len(text)):
        assert blobs_of(text, [size]) == [("indexer_topk", long.encode())]


def test_white_space_before_a_value_may_be_long_but_not_endless():
    key = b'{"routed_experts":'
    for gap, found in ((200, 1), (300, 0), (100_000, 0)):
        text = key + b" " * gap + b'"' + BLOB.encode() + b'"}'
        for size in (50, 4096):
            assert len(blobs_of(text, [size])) == found


def test_white_space_without_end_is_not_read_anew_with_each_piece():
    text = b'{"routed_experts":' + b" " * 2_000_000
    assert blobs_of(text, [20]) == []


def test_every_copy_and_field_of_a_reply_is_found():
    meta = {"id": "x", "routed_experts": BLOB, "indexer_topk": BLOB[::-1], "z": None}
    reply = {
        "choices": [
            {"meta_info": meta},
            {"routed_experts": BLOB + "QUI="},
            {"routed_experts": None},
        ],
        "sglext": {"routed_experts": BLOB},
    }
    text = json.dumps(reply).encode()
    wanted = [
        ("routed_experts", BLOB.encode()),
        ("indexer_topk", BLOB[::-1].encode()),
        ("routed_experts", BLOB.encode() + b"QUI="),
        ("routed_experts", BLOB.encode()),
    ]
    for size in (1, 3, 64, 300, 500, len(text)):
        assert blobs_of(text, [size]) == wanted


def test_a_blob_may_end_with_the_piece_and_its_quote_come_with_the_next():
    text = json.dumps({"routed_experts": BLOB}).encode()
    end = text.index(b'"}')
    for cut in (end - 1, end, end + 1):
        assert blobs_of(text, [cut, len(text)]) == [("routed_experts", BLOB.encode())]


def test_what_stands_for_a_blob_begins_no_other():
    scanner = TextScanner()
    assert scanner.feed(memoryview(b'{"routed_experts":"' + BLOB.encode())) is not None
    scanner.text += b"placeholder,"
    assert scanner.feed(memoryview(b'"routed_experts":"' + BLOB.encode())) is not None


def test_text_is_searched_once_however_many_names_stand_in_it():
    unit = b'{"routed_experts":"short","indexer_topk":"short"},'
    text = b"[" + unit * 20_000 + b'{"routed_experts":"' + BLOB.encode() + b'"}]'
    assert len(blobs_of(text, [16384])) == 1


@given(
    st.lists(
        st.sampled_from(
            [
                "{", "}", ",", ":", " ", "\\", '"', '"a"', '"routed_experts"', '"indexer_topk"',
                '"' + BLOB + '"', BLOB[:255], "[", "\n", "null", "é",
            ]
        ),
        max_size=14,
    ).map("".join),
    st.lists(st.integers(1, 300), max_size=5),
)  # fmt: skip
@settings(derandomize=True, deadline=None, max_examples=500)
def test_the_pieces_make_no_difference(text: str, sizes: list[int]):
    whole = text.encode()
    assert blobs_of(whole, sizes) == blobs_of(whole, [])
