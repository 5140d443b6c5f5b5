"""The simulated engine as an ASGI application.

Routes: the chat endpoint, what clients ask an engine about itself, the journal, and an echo of
everything else.

Must not know servers or sockets.

Spec: docs/sim.md
"""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sessions.errors.unseen import SimRefusalError
from sessions.sim.chat import ChatEndpoint
from sessions.sim.dialects import DIALECTS
from sessions.sim.echo import EchoEndpoint
from sessions.sim.journal import Journal
from sessions.sim.options import Dialect, SimOptions
from sessions.sim.vllm_reply import VERSION
from sessions.tokens.tokenizer import Tokenizer

# The one figure of an engine's metrics that is simulated.
_RUNNING: Final = {
    Dialect.SGLANG: "sglang:num_running_reqs",
    Dialect.VLLM: "vllm:num_requests_running",
}


def sim_app(options: SimOptions, tokenizer: Tokenizer) -> Starlette:
    """Make the application; each has its own journal and fault counts.

    Args:
        options: Of the engine.
        tokenizer: Must have ChatML's special tokens.

    Returns:
        An ASGI 3 application without a lifespan.

    Raises:
        SettingsError: The tokenizer has no ChatML stop token.
    """
    journal = Journal(options.journal)
    chat = ChatEndpoint(options, tokenizer, journal)
    about = _About(options, journal, chat)
    routes = [
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/models", about.models),
        Route("/health", about.health),
        Route("/get_model_info", about.model_info),
        Route("/version", about.version),
        Route("/metrics", about.metrics),
        Route("/sim/requests", about.requests),
        Route("/sim/requests", about.forget_requests, methods=["DELETE"]),
        Route("/{path:path}", EchoEndpoint()),
    ]
    error_of = DIALECTS[options.dialect].error_of

    async def refuse(_request: Request, error: Exception) -> Response:
        assert isinstance(error, SimRefusalError)  # noqa: S101 - registered for this class only
        return _json(error_of(error), error.status)

    return Starlette(routes=routes, exception_handlers={SimRefusalError: refuse})


class _About:
    """What an engine says about itself."""

    def __init__(self, options: SimOptions, journal: Journal, chat: ChatEndpoint) -> None:
        self._options = options
        self._journal = journal
        self._chat = chat
        self._start = int(time.time())

    async def models(self, _request: Request) -> Response:
        model = {
            "id": self._options.model,
            "object": "model",
            "created": self._start,
            "owned_by": self._options.dialect.value,
            "root": self._options.model,
            "parent": None,
            "max_model_len": self._options.context,
        }
        return _json({"object": "list", "data": [model]})

    async def health(self, _request: Request) -> Response:
        return Response(status_code=200)

    async def version(self, _request: Request) -> Response:
        if self._options.dialect is not Dialect.VLLM:
            return _not_found()
        return _json({"version": VERSION})

    async def metrics(self, _request: Request) -> Response:
        name = _RUNNING[self._options.dialect]
        text = f'{name}{{model_name="{self._options.model}"}} {self._chat.running}.0\n'
        return Response(text, media_type="text/plain")

    async def model_info(self, _request: Request) -> Response:
        if self._options.dialect is not Dialect.SGLANG:
            return _not_found()
        return _json(
            {
                "model_path": self._options.model,
                "tokenizer_path": self._options.model,
                "is_generation": True,
                "weight_version": self._options.weight_version,
            }
        )

    async def requests(self, _request: Request) -> Response:
        entries = [dataclasses.asdict(entry) for entry in self._journal.entries]
        return _json({"seen": self._journal.seen_count, "requests": entries})

    async def forget_requests(self, _request: Request) -> Response:
        self._journal.clear()
        return Response(status_code=204)


def _not_found() -> Response:
    return _json({"detail": "Not Found"}, 404)


def _json(value: object, status: int = 200) -> Response:
    # Not orjson: a request may have held what only Python's parser takes.
    content = json.dumps(value, separators=(",", ":"))
    return Response(content, status_code=status, media_type="application/json")
