"""The form of Anthropic's Messages API.

Must not know how turns run.

Spec: docs/sessions.md#anthropic-clients
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from sessions.core.engine_replies.engine_errors import is_error, message_and_code_of
from sessions.core.engine_replies.sampled import Sampled
from sessions.core.forms.chat_form import ChatForm
from sessions.core.forms.chat_request import ChatRequest
from sessions.core.http_exchange.headers import reply_headers_of
from sessions.core.http_exchange.replies import JSON_TYPE, passed_on
from sessions.core.http_exchange.replies import reply_of as response_of
from sessions.core.messages_api.events import PING, events_of
from sessions.core.messages_api.reply import reply_of
from sessions.core.messages_api.request import parse_messages_request
from sessions.core.texts.json_text import render_json
from sessions.engine.engine import EngineReply
from sessions.errors.client_visible import ClientVisibleError
from sessions.wire.messages_refusals import error_type_of, messages_body_of, messages_error_body


class MessagesForm:
    """See the module docstring; implements `ChatForm`."""

    name = "messages"
    keepalive = PING

    def parse(self, raw: bytes) -> ChatRequest:
        """See `ChatForm`."""
        return parse_messages_request(raw)

    def render(self, sampled: Sampled, chat: ChatRequest) -> bytes:
        """See `ChatForm`."""
        message = reply_of(sampled, chat.body.get("stop"))
        return b"".join(events_of(message)) if chat.wants_stream else render_json(message)

    def passed_on(self, reply: EngineReply, *extra: tuple[bytes, bytes]) -> Response:
        """See `ChatForm`."""
        if not is_error(reply.status):
            return passed_on(reply, *extra)
        headers = [*reply_headers_of(reply.headers, is_rewritten=True), JSON_TYPE, *extra]
        return response_of(reply.status, headers, _refusal_of(reply))

    def error_event_of(self, error: ClientVisibleError) -> bytes:
        """See `ChatForm`."""
        return _error_event_of(messages_body_of(error))

    def refusal_event_of(self, reply: EngineReply) -> bytes:
        """See `ChatForm`."""
        return _error_event_of(_refusal_of(reply))


MESSAGES: Final[ChatForm] = MessagesForm()


def _refusal_of(reply: EngineReply) -> bytes:
    message, code = message_and_code_of(reply.body)
    text = message or f"the engine answered {reply.status}"
    # Engines repeat the status in the place of a code.
    told = code if code and not code.isdigit() else "engine_error"
    return messages_error_body(text, error_type_of(reply.status), None, told)


def _error_event_of(body: bytes) -> bytes:
    return b"event: error\ndata: " + body + b"\n\n"
