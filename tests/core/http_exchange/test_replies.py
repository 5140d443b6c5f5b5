import json

import pytest

from sessions.core.http_exchange.replies import json_reply_of, passed_on, reply_of
from sessions.engine.engine import EngineReply


def engine_reply(
    body: bytes, status: int = 200, kind: bytes = b"application/json", *more: tuple[bytes, bytes]
) -> EngineReply:
    headers = [(b"content-type", kind)] if kind else []
    return EngineReply(status=status, headers=[*headers, *more], body=body)


def test_headers_are_sent_in_order_and_repeated():
    headers = [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
    response = reply_of(200, headers, b"x")
    assert response.raw_headers == [*headers, (b"content-length", b"1")]


@pytest.mark.parametrize("status", [204, 304])
def test_a_reply_that_cannot_have_a_body_states_no_length(status: int):
    assert reply_of(status).raw_headers == []


def test_a_value_becomes_json():
    response = json_reply_of({"a": "é"})
    assert response.body == '{"a":"é"}'.encode()
    assert response.headers["content-type"] == "application/json"


def test_a_reply_without_replay_fields_passes_as_it_is():
    reply = engine_reply(b' {"a" : 1}', 200, b"application/json; x", (b"etag", b"e"))
    response = passed_on(reply)
    assert response.body == reply.body
    assert response.raw_headers == [*reply.headers, (b"content-length", b"10")]


@pytest.mark.parametrize("status", [200, 201, 400, 500])
def test_replay_fields_are_taken_out_at_every_status(status: int):
    body = json.dumps({"a": 1, "sglext": {"routed_experts": "QUJD"}}).encode()
    response = passed_on(engine_reply(body, status, b"application/json", (b"etag", b"e")))
    assert response.body == b'{"a":1,"sglext":{}}'
    assert response.headers["content-length"] == str(len(response.body))
    assert response.headers["content-type"] == "application/json"
    assert "etag" not in response.headers


def test_a_stream_of_events_stays_one_without_its_replay_fields():
    body = b'data: {"meta_info":{"routed_experts":"QUJD"}}\n\n'
    response = passed_on(engine_reply(body, 200, b"text/event-stream"))
    assert response.body == b'data: {"meta_info":{}}\n\n'
    assert response.headers.getlist("content-type") == ["text/event-stream"]


def test_an_error_that_is_no_json_is_wrapped_under_its_status_with_one_content_type():
    reply = engine_reply(b"Bad Gateway", 503, b"text/html", (b"retry-after", b"7"))
    response = passed_on(reply, (b"x-turn-recorded", b"false"))
    assert response.status_code == 503
    assert json.loads(bytes(response.body))["error"]["message"] == "Bad Gateway"
    assert response.headers.getlist("content-type") == ["application/json"]
    assert response.headers["retry-after"] == "7"
    assert response.headers["x-turn-recorded"] == "false"


def test_a_reply_that_is_no_error_is_not_wrapped():
    assert passed_on(engine_reply(b"plain", 200, b"text/plain")).body == b"plain"


def test_a_missing_content_type_stays_missing():
    assert "content-type" not in passed_on(engine_reply(b"x", 200, b"")).headers
