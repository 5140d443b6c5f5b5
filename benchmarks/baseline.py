"""A session server of the usual kind, to compare with: one process, one document per reply.

Starlette on uvicorn. The engine's reply is fetched with httpx, parsed with json, kept in a pydantic
record, and what the client gets is rendered with json. Prompts are made by the same builder as
ours, so that tokens cost the same on both sides.

`python -m uvicorn --factory benchmarks.baseline:app`, with the engine's URL in BASELINE_ENGINE_URL.

Spec: docs/benchmark.md#production-shape
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sessions.tokens.prompts import PromptBuilder, load_prompt_builder

ENGINE_VARIABLE: Final = "BASELINE_ENGINE_URL"
_TOKENIZER: Final = "pkg:qwen3"
_TIMEOUT_S: Final = 600.0


class Record(BaseModel):
    """One turn as it is kept."""

    timestamp: float
    method: str
    path: str
    request: dict[str, Any]
    response: dict[str, Any]
    status_code: int


@dataclass(slots=True)
class _Session:
    messages: list[dict[str, Any]] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)


class _Server:
    def __init__(self, engine_url: str, prompts: PromptBuilder) -> None:
        self._prompts = prompts
        self._sessions: dict[str, _Session] = {}
        limits = httpx.Limits(max_connections=1024)
        self.client = httpx.AsyncClient(
            base_url=engine_url, timeout=_TIMEOUT_S, limits=limits, trust_env=False
        )

    async def create(self, _request: Request) -> Response:
        session_id = uuid.uuid4().hex
        self._sessions[session_id] = _Session()
        return _json({"session_id": session_id})

    async def delete(self, request: Request) -> Response:
        del self._sessions[request.path_params["session_id"]]
        return Response(status_code=204)

    async def read(self, request: Request) -> Response:
        session = self._sessions[request.path_params["session_id"]]
        return _json({"records": [record.model_dump() for record in session.records]})

    async def chat(self, request: Request) -> Response:
        session = self._sessions[request.path_params["session_id"]]
        body = json.loads(await request.body())
        prompt = self._prompt_of(session, body)
        upstream = {
            **body,
            "input_ids": prompt,
            "logprobs": True,
            "return_meta_info": True,
            "return_routed_experts": True,
            "no_stop_trim": False,
            "chat_template_kwargs": self._prompts.template_kwargs_of(None),
        }
        answer = await self.client.post(
            "/v1/chat/completions",
            content=json.dumps(upstream).encode(),
            headers={"content-type": "application/json"},
        )
        answer.raise_for_status()
        reply = json.loads(answer.content)
        choice = reply["choices"][0]
        sampled = [entry[1] for entry in choice["meta_info"]["output_token_logprobs"]]
        session.records.append(
            Record(
                timestamp=time.time(),
                method="POST",
                path="/v1/chat/completions",
                request=upstream,
                response=reply,
                status_code=answer.status_code,
            )
        )
        session.messages = [*body["messages"], choice["message"]]
        session.token_ids = prompt + sampled
        meta_info = {k: v for k, v in choice["meta_info"].items() if k != "routed_experts"}
        return _json({**reply, "choices": [{**choice, "meta_info": meta_info}]})

    def _prompt_of(self, session: _Session, body: dict[str, Any]) -> list[int]:
        messages, tools = body["messages"], body.get("tools")
        known = len(session.messages)
        if not known:
            return self._prompts.first(messages, tools)
        if messages[:known] != session.messages:
            raise ValueError("the history differs")
        return self._prompts.next(
            session.token_ids, session.messages[-1], messages[known:], tools, offset=known
        )


def app() -> Starlette:
    """Make the application."""
    server = _Server(os.environ[ENGINE_VARIABLE], load_prompt_builder(_TOKENIZER))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with server.client:
            yield

    session = "/sessions/{session_id}"
    routes = [
        Route("/sessions", server.create, methods=["POST"]),
        Route(session, server.read, methods=["GET"]),
        Route(session, server.delete, methods=["DELETE"]),
        Route(f"{session}/v1/chat/completions", server.chat, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def _json(value: object) -> Response:
    return Response(json.dumps(value), media_type="application/json")
