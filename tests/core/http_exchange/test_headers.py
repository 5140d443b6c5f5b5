import pytest

from sessions.core.http_exchange.headers import EngineHeaders, reply_headers_of
from sessions.routing.keys import session_key_of

LABELS = EngineHeaders(routing_key=b"x-smg-routing-key")
KEY = session_key_of(b"secret", "abc").encode()

HOP_BY_HOP = [
    (b"connection", b"keep-alive, X-Private , te"),
    (b"x-private", b"1"),
    (b"keep-alive", b"timeout=5"),
    (b"proxy-authenticate", b"x"),
    (b"proxy-authorization", b"x"),
    (b"proxy-connection", b"x"),
    (b"te", b"trailers"),
    (b"trailer", b"x"),
    (b"transfer-encoding", b"chunked"),
    (b"upgrade", b"h2c"),
]


def sent(headers: list[tuple[bytes, bytes]], **more: bool) -> list[tuple[bytes, bytes]]:
    return LABELS.request_headers_of(headers, "abc", **more)


def names(headers: list[tuple[bytes, bytes]]) -> list[bytes]:
    return [name for name, _ in headers]


def test_end_to_end_headers_pass_in_order_and_repeated():
    headers = [(b"x-a", b"1"), (b"anthropic-beta", b"x"), (b"x-a", b"2"), (b"cookie", b"c=1")]
    assert sent(headers)[:4] == headers


def test_what_belongs_to_the_connection_does_not_reach_the_engine():
    own = [
        (b"host", b"x"),
        (b"content-length", b"1"),
        (b"expect", b"100-continue"),
        (b"http2-settings", b"x"),
    ]
    assert names(sent([*HOP_BY_HOP, *own])) == [b"accept-encoding", b"x-smg-routing-key"]


def test_the_engine_is_asked_for_bodies_that_need_no_decoding():
    headers = sent([(b"accept-encoding", b"br, zstd")])
    assert [value for name, value in headers if name == b"accept-encoding"] == [b"identity"]


def test_the_routing_key_is_ours_and_there_once():
    headers = sent([(b"x-smg-routing-key", b"theirs"), (b"x-smg-routing-key", b"again")])
    assert [value for name, value in headers if name == b"x-smg-routing-key"] == [b"abc"]


def test_a_request_of_no_session_has_no_routing_key():
    assert names(LABELS.request_headers_of([], "")) == [b"accept-encoding"]


def test_a_body_of_ours_has_our_content_type():
    headers = sent(
        [(b"content-type", b"application/x-www-form-urlencoded"), (b"content-md5", b"x")],
        is_json=True,
    )
    assert [value for name, value in headers if name == b"content-type"] == [b"application/json"]
    assert b"content-md5" not in names(headers)


def test_a_body_that_passes_keeps_its_content_type():
    assert (b"content-type", b"text/csv") in sent([(b"content-type", b"text/csv")])


@pytest.mark.parametrize(
    "header",
    [
        (b"authorization", b"Bearer " + KEY),
        (b"authorization", b"bearer   " + KEY),
        (b"authorization", KEY),
        (b"x-api-key", KEY),
        (b"x-api-key", session_key_of(b"a run before", "abc").encode()),
    ],
)
def test_session_keys_never_reach_the_engine(header: tuple[bytes, bytes]):
    assert header[0] not in names(sent([header]))


@pytest.mark.parametrize(
    "header",
    [
        (b"authorization", b"Bearer sk-1"),
        (b"x-api-key", b"sk-1"),
        (b"authorization", b"Basic eA=="),
    ],
)
def test_credentials_of_the_client_pass(header: tuple[bytes, bytes]):
    assert header in sent([header])


def test_our_key_for_the_engine_replaces_the_clients_credentials():
    labels = EngineHeaders(routing_key=b"x-r", api_key="engine")
    headers = labels.request_headers_of(
        [(b"authorization", b"Bearer sk"), (b"x-api-key", b"sk")], ""
    )
    assert [pair for pair in headers if pair[0] in {b"authorization", b"x-api-key"}] == [
        (b"authorization", b"Bearer engine")
    ]


def test_what_belongs_to_the_connection_does_not_reach_the_client():
    own = [
        (b"server", b"x"),
        (b"date", b"x"),
        (b"content-length", b"9"),
        (b"content-encoding", b"gzip"),
        (b"x-turn-recorded", b"true"),
    ]
    assert list(reply_headers_of([*HOP_BY_HOP, *own], is_rewritten=False)) == []


def test_cookies_of_the_engine_are_kept_apart():
    headers = [(b"set-cookie", b"a=1, x"), (b"x-request-id", b"r"), (b"set-cookie", b"b=2")]
    assert list(reply_headers_of(headers, is_rewritten=True)) == headers


def test_what_describes_the_engines_bytes_goes_when_they_are_rewritten():
    headers = [
        (b"content-type", b"application/json"),
        (b"etag", b"x"),
        (b"repr-digest", b"x"),
        (b"vary", b"Origin"),
    ]
    assert list(reply_headers_of(headers, is_rewritten=True)) == [(b"vary", b"Origin")]
    assert list(reply_headers_of(headers, is_rewritten=False)) == headers
