import pytest

from sessions.core.http_exchange.client_request import ClientRequest


async def never() -> None:
    raise NotImplementedError


@pytest.mark.parametrize(("query", "target"), [(b"", b"/v1/x"), (b"a=%2F&b", b"/v1/x?a=%2F&b")])
def test_the_query_follows_the_path_as_it_came(query: bytes, target: bytes):
    request = ClientRequest(method="GET", query=query, headers=[], body=b"", wait_gone=never)
    assert request.target_of(b"/v1/x") == target
