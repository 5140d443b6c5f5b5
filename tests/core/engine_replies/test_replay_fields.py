import json

import pytest

from sessions.core.engine_replies.replay_fields import (
    NOT_TEXT,
    blank_replay,
    has_replay,
    take_replay,
    take_replay_fields,
    without_replay,
)
from sessions.core.texts.json_text import JsonObject

BLOB = "QUJD" * 100


def test_the_fields_are_taken_from_every_place_where_engines_put_them():
    value: JsonObject = {
        "routed_experts": "a",
        "choices": [
            {
                "meta_info": {"id": "x", "routed_experts": "b", "indexer_topk": "c"},
                "routed_experts": "d",
            },
            {"meta_info": {"routed_experts": "e"}},
        ],
        "sglext": {"routed_experts": "b", "cached_tokens": 1},
        "meta_info": {"indexer_topk": None},
    }
    assert sorted(take_replay(value)) == ["a", "b", "c", "d", "e"]
    assert value == {
        "choices": [{"meta_info": {"id": "x"}}, {"meta_info": {}}],
        "sglext": {"cached_tokens": 1},
        "meta_info": {},
    }


def test_a_list_of_native_replies_is_searched():
    value: list[JsonObject | None] = [
        {"text": "x", "meta_info": {"routed_experts": "a"}},
        None,
        {"meta_info": {}},
    ]
    assert take_replay(value) == ["a"]
    assert value == [{"text": "x", "meta_info": {}}, None, {"meta_info": {}}]


def test_a_field_that_is_no_text_is_taken_and_told():
    value: JsonObject = {"routed_experts": [[1, 2]], "indexer_topk": None}
    assert take_replay_fields(value) == [("routed_experts", NOT_TEXT)]
    assert value == {}


def test_lists_of_tokens_are_left_alone():
    value: JsonObject = {"output_token_logprobs": [[0.1, 1, None]], "ids": [1, 2, 3]}
    assert take_replay(value) == []
    assert value == {"output_token_logprobs": [[0.1, 1, None]], "ids": [1, 2, 3]}


def test_a_very_deep_reply_is_searched_without_recursion():
    deep: object = {"routed_experts": "a"}
    for _ in range(5000):
        deep = {"x": deep}
    assert take_replay(deep) == ["a"]


def test_a_body_without_the_fields_passes_untouched():
    assert without_replay(b'{"routed":"experts"}') is None
    assert not has_replay(b"routed_experts")


def test_a_json_body_loses_them():
    body = json.dumps({"meta_info": {"routed_experts": BLOB, "n": 1}, "t": "é"}).encode()
    assert without_replay(body) == '{"meta_info":{"n":1},"t":"é"}'.encode()


def test_a_stream_of_events_loses_them_and_stays_a_stream():
    first = "data: " + json.dumps({"text": "a\u2028", "meta_info": {"indexer_topk": BLOB}})
    body = f': comment\n\ndata: {{"text":"b"}}\n\n{first}\n\ndata: [DONE]\n\n'.encode()
    told = without_replay(body)
    assert told is not None
    assert BLOB.encode() not in told
    lines = told.split(b"\n")
    assert lines[:4] == [b": comment", b"", b'data: {"text":"b"}', b""]
    assert lines[4] == b'data: {"text":"a\\u2028","meta_info":{}}'
    assert lines[6:] == [b"data: [DONE]", b"", b""]


@pytest.mark.parametrize(
    "body",
    [b'data: {"routed_experts": "%s', b'oops "indexer_topk" :"%s" x', b'{"routed_experts":"%s'],
)
def test_a_text_that_is_neither_is_blanked(body: bytes):
    told = without_replay(body % BLOB.encode())
    assert told is not None
    assert BLOB[:8].encode() not in told


def test_blanking_keeps_the_rest():
    assert blank_replay(b'a "routed_experts": "xyz", b') == b'a "routed_experts": "", b'
