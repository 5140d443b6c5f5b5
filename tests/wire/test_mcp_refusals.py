"""Refusals on the path of MCP: one body that two kinds of client can read."""

import json

import pytest
from mcp_types import JSONRPCError
from mcp_types.jsonrpc import jsonrpc_message_adapter

from sessions.errors.client_visible import RequestError
from sessions.errors.episodes import BadEpisodeTokenError, EpisodeNotRunningError
from sessions.errors.group import draining_error
from sessions.wire.mcp_refusals import is_mcp_path, mcp_body_of

GONE = EpisodeNotRunningError("episode r1 is not running on this server")


def test_is_an_error_of_json_rpc_and_tells_what_ours_tells_on_the_path_of_mcp():
    assert json.loads(mcp_body_of(GONE)) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {
            "code": 410,
            "message": "episode r1 is not running on this server",
            "type": "gone_error",
            "param": None,
            "data": {"code": "episode_not_running"},
        },
        "detail": "episode r1 is not running on this server",
    }


@pytest.mark.parametrize("error", [GONE, BadEpisodeTokenError("né"), draining_error()])
def test_is_read_as_an_error_by_the_sdk(error: RequestError):
    read = jsonrpc_message_adapter.validate_json(mcp_body_of(error), by_name=False)
    assert isinstance(read, JSONRPCError)
    assert (read.id, read.error.code, read.error.message) == (None, error.status, error.message)
    assert read.error.data == {"code": error.code}


def test_is_ascii_whatever_the_message_says():
    assert mcp_body_of(BadEpisodeTokenError("né\ud800")).isascii()


@pytest.mark.parametrize("path", [b"/mcp", b"/mcp/", b"/%6dcp", b"/mcp%2F"])
def test_a_path_is_compared_as_the_application_sees_it(path: bytes):
    assert is_mcp_path(path)
