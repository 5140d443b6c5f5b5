"""How a client speaks: the form of its chat requests, and of the replies and streams that it gets.

A turn is the same whatever its client speaks. A form reads the client's body before the turn, and
tells what was sampled, or what went wrong, after it; everything between knows nothing of it.

Must not know how turns run.

Spec: docs/sessions.md#forms
"""

from __future__ import annotations

from typing import Protocol

from starlette.responses import Response

from sessions.core.engine_replies.sampled import Sampled
from sessions.core.forms.chat_request import ChatRequest
from sessions.engine.engine import EngineReply
from sessions.errors.client_visible import ClientVisibleError


class ChatForm(Protocol):
    """See the module docstring; implementations have no state.

    Attributes:
        name: Up to 16 ASCII characters; bodies of two forms are never the same request.
        keepalive: Sent in a stream while the turn is awaited.
    """

    name: str
    keepalive: bytes

    def parse(self, raw: bytes) -> ChatRequest:
        """Read the body of a request.

        Raises:
            RequestError: It is malformed; `param` names the field.
        """

    def render(self, sampled: Sampled, chat: ChatRequest) -> bytes:
        """Tell a turn: whole, or as the events of a stream if the client wants one.

        Args:
            sampled: What the engine sampled, without what the client does not get; its count of the
                prompt is right.
            chat: The client's request.

        Raises:
            RecursionError: The reply is nested too deeply.
            ValueError: It cannot be told.
        """

    def passed_on(self, reply: EngineReply, *extra: tuple[bytes, bytes]) -> Response:
        """A reply of the engine that is no turn, a refusal mostly.

        Args:
            reply: The engine's reply.
            extra: Further headers.
        """

    def error_event_of(self, error: ClientVisibleError) -> bytes:
        """An error as an event of a stream that has begun."""

    def refusal_event_of(self, reply: EngineReply) -> bytes:
        """The engine's refusal as an event of a stream that has begun."""
