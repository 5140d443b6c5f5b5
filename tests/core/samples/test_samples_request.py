"""What a request for samples may say."""

import pytest

from sessions.core.samples.samples_request import SamplesRequest, parse_samples_request
from sessions.errors.client_visible import RequestError


@pytest.mark.parametrize(
    "raw", [b"", b" \n", b"{}", b'{"max_seq_len":null}', b'{"metadata":null}', b' {"x" : null} ']
)
def test_there_is_no_limit_when_the_body_gives_none(raw: bytes):
    assert parse_samples_request(raw) == SamplesRequest(max_seq_len=None)


@pytest.mark.parametrize(("raw", "limit"), [(b'{"max_seq_len":1}', 1), (b'{"max_seq_len":7}', 7)])
def test_the_limit_is_read(raw: bytes, limit: int):
    assert parse_samples_request(raw).max_seq_len == limit


@pytest.mark.parametrize("value", ["0", "-1", "true", "1.0", '"5"', "[]", "{}"])
def test_a_limit_that_is_none_is_refused_by_name(value: str):
    with pytest.raises(RequestError, match="max_seq_len must be") as caught:
        parse_samples_request(b'{"max_seq_len":%s}' % value.encode())
    assert caught.value.param == "max_seq_len"


def test_a_member_that_would_be_overlooked_is_refused_by_name():
    with pytest.raises(RequestError, match="max_seqlen is unknown") as caught:
        parse_samples_request(b'{"max_seqlen":5}')
    assert caught.value.param == "max_seqlen"


@pytest.mark.parametrize("raw", [b"{", b"\xff", b"[]", b"null", b"5", b"NaN"])
def test_a_body_that_is_no_json_object_is_refused(raw: bytes):
    with pytest.raises(RequestError) as caught:
        parse_samples_request(raw)
    assert caught.value.status == 400
    assert caught.value.param is None


def test_metadata_are_handed_on():
    found = parse_samples_request(b'{"metadata":{"reward":1,"a":[{}]}}')
    assert found == SamplesRequest(metadata={"reward": 1, "a": [{}]})


def nested(levels: int) -> bytes:
    return b'{"metadata":' + b'{"x":' * levels + b"1" + b"}" * levels + b"}"


@pytest.mark.parametrize("raw", [b'{"metadata":1}', b'{"metadata":[]}', nested(65), nested(400)])
def test_metadata_that_are_no_flat_object_are_refused_by_name(raw: bytes):
    with pytest.raises(RequestError, match="metadata must be an object, nested by 64") as caught:
        parse_samples_request(raw)
    assert caught.value.param == "metadata"


def test_metadata_may_be_nested_up_to_the_limit():
    assert parse_samples_request(nested(64)).metadata
