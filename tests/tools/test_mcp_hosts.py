"""Which hosts a request may name."""

import pytest

from sessions.errors.episodes import ForeignOriginError, MisdirectedRequestError
from sessions.tools.mcp_hosts import check_host

ALLOWED = frozenset({"tools.example", "localhost:8000", "[::1]"})


@pytest.mark.parametrize(
    "host", ["tools.example", "TOOLS.example:1", "localhost:8000", "[::1]", "[::1]:9"]
)
def test_an_allowed_host_passes(host: str):
    check_host({"host": host}, ALLOWED)


@pytest.mark.parametrize(
    "host",
    ["", "localhost", "localhost:8001", "evil.example", "x.tools.example", "tools.example.evil:1"],
)
def test_another_host_is_misdirected(host: str):
    with pytest.raises(MisdirectedRequestError):
        check_host({"host": host}, ALLOWED)


def test_no_host_at_all_is_misdirected():
    with pytest.raises(MisdirectedRequestError):
        check_host({}, ALLOWED)


@pytest.mark.parametrize(
    "origin", ["http://tools.example", "https://tools.example:9", "http://[::1]:2"]
)
def test_a_page_of_an_allowed_host_passes(origin: str):
    check_host({"host": "tools.example", "origin": origin}, ALLOWED)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "http://[", "tools.example"])
def test_a_page_of_another_host_is_foreign(origin: str):
    with pytest.raises(ForeignOriginError):
        check_host({"host": "tools.example", "origin": origin}, ALLOWED)


def test_everything_passes_when_no_host_is_named():
    check_host({"host": "evil.example", "origin": "http://evil.example"}, frozenset())
    check_host({}, frozenset())
