"""The body of an error reply, by the path that was asked.

Where clients of a protocol ask that has an error form of its own, one body is that form and ours
at once; all other paths get the one error shape unchanged. The router, the lone shard's gate and
the applications all write refusals through here.

Spec: docs/errors.md#by-path
"""

from __future__ import annotations

from sessions.errors.client_visible import ClientVisibleError
from sessions.wire.mcp_refusals import is_mcp_path, mcp_body_of
from sessions.wire.messages_refusals import is_messages_path, messages_body_of


def refusal_body_of(error: ClientVisibleError, path: bytes) -> bytes:
    """The body that a client of a path can read.

    Args:
        error: What is answered.
        path: Of the request, without the query, percent-encoded as it was sent; empty when it is
            not known.

    Returns:
        Compact ASCII JSON.
    """
    if is_mcp_path(path):
        return mcp_body_of(error)
    if is_messages_path(path):
        return messages_body_of(error)
    return error.body
