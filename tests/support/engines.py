"""A fake engine for tests of the core: replies are scripted, requests are kept.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sessions.engine.engine import EngineReply, EngineRequest, OpenSink

Answer = EngineReply | Exception | Callable[[dict[str, Any]], EngineReply]


def sampled_document(
    ids: Sequence[int],
    *,
    content: str | None = "ok",
    finish_reason: str | None = "stop",
    **message: object,
) -> dict[str, Any]:
    """A 200 reply of SGLang's chat endpoint that sampled these ids."""
    return {
        "id": "chat-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content, **message},
                "logprobs": {"content": [{"token": "t", "logprob": -0.5} for _ in ids]},
                "finish_reason": finish_reason,
                "meta_info": {
                    "id": "chat-1",
                    "completion_tokens": len(ids),
                    "output_token_logprobs": [[-0.5, token, None] for token in ids],
                },
            }
        ],
        "usage": {"completion_tokens": len(ids)},
    }


def json_reply(
    document: object, status: int = 200, headers: Sequence[tuple[str, str]] = ()
) -> EngineReply:
    """A JSON reply; `document` may be bytes that are sent as they are."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    named = [("content-type", "application/json"), *headers]
    return EngineReply(
        status=status, headers=[(k.encode(), v.encode()) for k, v in named], body=body
    )


class ScriptedEngine:
    """An engine that gives its answers in order, the last one for ever.

    Attributes:
        requests: What it got, oldest first.
        gate: Requests wait here; open unless a test clears it.
        waiting: How many requests stand before the gate.
        cancelled: How many of them were cancelled there.
        forgotten: Sessions that it was told to forget, in order.
    """

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[EngineRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0
        self.cancelled = 0
        self.forgotten: list[str] = []

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The JSON bodies that it got."""
        return [json.loads(request.body) for request in self.requests]

    async def exchange(
        self, request: EngineRequest, open_sink: OpenSink | None = None
    ) -> EngineReply:
        """Give the next answer once the gate is open; its body to the sink, if one is opened."""
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.waiting += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.waiting -= 1
        if isinstance(answer, Exception):
            raise answer
        reply = answer if isinstance(answer, EngineReply) else answer(json.loads(request.body))
        sink = open_sink(reply.status, reply.headers) if open_sink is not None else None
        if sink is None:
            return reply
        if reply.body and not sink.feed(memoryview(reply.body)):
            await sink.wait_room()
        return replace(reply, body=b"", is_sunk=True)

    def forget(self, affinity: str) -> None:
        """Note that a session ended."""
        self.forgotten.append(affinity)
