"""Episodes and their tools.

A refused call never reached its tool, whatever its status.

Spec: docs/errors.md#statuses
"""

from __future__ import annotations

from sessions.errors.client_visible import RequestError


class BadEpisodeTokenError(RequestError):
    """No episode token, or one that this run did not sign.

    Without `WWW-Authenticate`: with it, clients begin an OAuth dance that cannot end well.
    """

    status = 401
    type = "authentication_error"
    code = "bad_episode_token"


class WrongNonceError(RequestError):
    """Well signed, but of another run of the attempt, or made without the episode's nonce."""

    status = 403
    type = "permission_error"
    code = "wrong_nonce"


class ForeignOriginError(RequestError):
    """Sent by a page of another host than those that may use the server."""

    status = 403
    type = "permission_error"
    code = "foreign_origin"


class MisdirectedRequestError(RequestError):
    """Addressed to a host that this server is not (RFC 9110 section 15.5.20)."""

    status = 421
    code = "misdirected_request"


class EpisodeNotRunningError(RequestError):
    """The episode ended, or it never was; never a 404, with which some clients give up for good."""

    status = 410
    type = "gone_error"
    code = "episode_not_running"


class McpSessionGoneError(RequestError):
    """The shard of a session of MCP died; 404 is the protocol's word for: initialize again."""

    status = 404
    type = "not_found_error"
    code = "mcp_session_gone"


class DuplicateClaimError(RequestError):
    """Somebody holds the claim, and keeps it."""

    status = 409
    type = "conflict_error"
    code = "duplicate_claim"


class UnknownToolError(RequestError):
    """The episode has no tool of that name; the message names those that it has."""

    status = 404
    type = "not_found_error"
    code = "unknown_tool"


class ToolArgumentsError(RequestError):
    """The arguments are not those of the tool; it did not run. For the agent to read."""

    status = 422
    code = "bad_tool_arguments"


class ToolError(RequestError):
    """Raised by a tool: it ran and could not do what was asked. For the agent to read."""

    status = 422
    type = "tool_error"
    code = "tool_failed"
