import pytest

from sessions.core.texts.object_body import parse_object_body
from sessions.errors.client_visible import RequestError


def test_an_object_is_taken():
    assert parse_object_body(b' {"a": [1]} ') == {"a": [1]}


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"NaN", b"[" * 100_000])
def test_what_is_no_json_is_refused(raw: bytes):
    with pytest.raises(RequestError, match="the body is not valid JSON: "):
        parse_object_body(raw)


@pytest.mark.parametrize("raw", [b"[]", b"null", b'"x"', b"1"])
def test_what_is_no_object_is_refused(raw: bytes):
    with pytest.raises(RequestError, match="the body must be a JSON object"):
        parse_object_body(raw)
