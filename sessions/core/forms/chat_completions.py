"""The form of OpenAI's chat completions: nearly what engines speak themselves.

Must not know how turns run.

Spec: docs/sessions.md#forms
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from sessions.core.engine_replies.engine_errors import event_error_of
from sessions.core.engine_replies.sampled import Sampled
from sessions.core.forms.chat_events import KEEPALIVE_COMMENT, event_of, events_of
from sessions.core.forms.chat_form import ChatForm
from sessions.core.forms.chat_request import ChatRequest, parse_chat_request
from sessions.core.http_exchange.replies import passed_on
from sessions.core.texts.json_text import render_json
from sessions.engine.engine import EngineReply
from sessions.errors.client_visible import ClientVisibleError


class ChatCompletionsForm:
    """See the module docstring; implements `ChatForm`."""

    name = "chat completions"
    keepalive = KEEPALIVE_COMMENT

    def parse(self, raw: bytes) -> ChatRequest:
        """See `ChatForm`."""
        return parse_chat_request(raw)

    def render(self, sampled: Sampled, chat: ChatRequest) -> bytes:
        """See `ChatForm`."""
        if not chat.wants_stream:
            return render_json(sampled.reply)
        has_logprobs = chat.asks("logprobs")
        events = events_of(sampled.reply, has_usage=chat.wants_usage, has_logprobs=has_logprobs)
        return b"".join(events)

    def passed_on(self, reply: EngineReply, *extra: tuple[bytes, bytes]) -> Response:
        """See `ChatForm`."""
        return passed_on(reply, *extra)

    def error_event_of(self, error: ClientVisibleError) -> bytes:
        """See `ChatForm`."""
        return event_of(error.body.decode())

    def refusal_event_of(self, reply: EngineReply) -> bytes:
        """See `ChatForm`."""
        return event_of(event_error_of(reply.status, reply.body).decode())


CHAT_COMPLETIONS: Final[ChatForm] = ChatCompletionsForm()
