import json

import pytest

from sessions.errors.sessions import UnknownSessionError
from sessions.wire.mcp_refusals import mcp_body_of
from sessions.wire.messages_refusals import messages_body_of
from sessions.wire.refusals import refusal_body_of

ERROR = UnknownSessionError("no session x on this server")


@pytest.mark.parametrize(
    "path",
    [b"", b"/", b"/mcpx", b"/mcp/x", b"/x/mcp", b"/sessions/a/mcp", b"/sessions/a/v1/messages/x"],
)
def test_is_our_shape_alone_where_no_other_is_spoken(path: bytes):
    assert refusal_body_of(ERROR, path) == ERROR.body


@pytest.mark.parametrize("path", [b"/mcp", b"/mcp/"])
def test_is_for_clients_of_mcp_on_its_path(path: bytes):
    assert refusal_body_of(ERROR, path) == mcp_body_of(ERROR)


@pytest.mark.parametrize("path", [b"/sessions/x/v1/messages", b"/v1/messages/count_tokens"])
def test_is_for_clients_of_messages_on_their_paths(path: bytes):
    assert refusal_body_of(ERROR, path) == messages_body_of(ERROR)


@pytest.mark.parametrize("path", [b"/mcp", b"/v1/messages"])
def test_whoever_looks_for_our_shape_finds_its_message_and_param(path: bytes):
    told = json.loads(refusal_body_of(ERROR, path))["error"]
    assert (told["message"], told["param"]) == (ERROR.message, None)
