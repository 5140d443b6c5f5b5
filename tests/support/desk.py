"""A session core on a scripted engine, with what tests ask of both.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response
from starlette.types import Message

from sessions.core.dialects.choice import DialectChoice
from sessions.core.http_exchange.client_request import ClientRequest
from sessions.core.http_exchange.headers import EngineHeaders
from sessions.core.matchers.fields import STRICT
from sessions.core.matchers.matcher import Matcher
from sessions.core.open_sessions.registry import SessionRegistry
from sessions.core.open_sessions.session_options import DEFAULT_OPTIONS, SessionOptions
from sessions.core.samples.default_hooks import DEFAULT_HOOKS
from sessions.core.samples.hooks import SampleHooks
from sessions.core.session_core import CoreRules, SessionCore
from sessions.core.turns.turn_preparer import ReplayRules
from sessions.engine.engine import EngineReply
from sessions.replay.file_store import open_replay_store
from sessions.routing.ids import mint_session_id
from sessions.tokens.prompts import PromptBuilder
from tests.support.engines import Answer, ScriptedEngine, json_reply, sampled_document


class Desk:
    """See the module docstring."""

    def __init__(
        self,
        prompts: PromptBuilder,
        *answers: Answer,
        keepalive_s: float = 60.0,
        cancel_on_disconnect: bool = False,
        routing_replay: bool = False,
        replay_budget_bytes: int = 1 << 30,
        incremental: bool = False,
        labels: EngineHeaders | None = None,
        dialect: str = "sglang",
        is_echo_required: bool = False,
        session: SessionOptions = DEFAULT_OPTIONS,
        matcher: Matcher = STRICT,
        hooks: SampleHooks = DEFAULT_HOOKS,
    ) -> None:
        self.prompts = prompts
        self.engine = ScriptedEngine(*(answers or [self.says("ok")]))
        self.replay = open_replay_store("")
        self.registry = SessionRegistry(
            lambda: mint_session_id(0, 1), tombstones=100, matcher=matcher
        )
        self.gone = asyncio.Event()
        labels = labels or EngineHeaders(routing_key=b"x-smg-routing-key")
        self.dialects = DialectChoice(
            self.engine, labels, name=dialect, is_echo_required=is_echo_required
        )
        self.core = SessionCore(
            registry=self.registry,
            engine=self.engine,
            prompts=prompts,
            replay=self.replay,
            labels=labels,
            dialects=self.dialects,
            key_of=lambda session_id: f"key of {session_id}",
            rules=CoreRules(
                keepalive_s=keepalive_s,
                cancel_on_disconnect=cancel_on_disconnect,
                replay=ReplayRules(is_wanted=routing_replay, is_incremental=incremental),
                replay_budget_bytes=replay_budget_bytes,
                ingest_budget_bytes=1 << 30,
                session=session,
                hooks=hooks,
            ),
        )

    def open(self, **options: object) -> str:
        """A new session's id; the options are the body of the request."""
        body = json.dumps(options).encode() if options else b""
        session_id: str = json.loads(bytes(self.core.create("http://x", body).body))["session_id"]
        return session_id

    def says(self, text: str, **changes: Any) -> EngineReply:  # noqa: ANN401 - JSON
        """An engine's reply that sampled a text and the stop token."""
        return json_reply(self.document(text, **changes))

    def document(self, text: str, **message: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """The same as a document to change."""
        return sampled_document(self.sampled_ids(text), content=text, **message)

    def sampled_ids(self, text: str) -> list[int]:
        """What a model samples that says a text: an empty think block, the text, the stop token."""
        return self.prompts.tokenizer.encode(f"<think>\n\n</think>\n\n{text}<|im_end|>")

    def request(
        self, body: bytes, headers: Sequence[tuple[bytes, bytes]] = (), query: bytes = b""
    ) -> ClientRequest:
        """A POST whose client is gone once `gone` is set."""

        async def wait_gone() -> None:
            await self.gone.wait()

        return ClientRequest(
            method="POST", query=query, headers=headers, body=body, wait_gone=wait_gone
        )

    async def chat(self, session_id: str, *messages: object, **fields: object) -> Response:
        """One turn; a message that is a str is the user's."""
        body = json.dumps({"messages": [user(m) for m in messages], **fields}).encode()
        return await self.core.chat(session_id, self.request(body))

    def chat_later(
        self, session_id: str, *messages: object, **fields: object
    ) -> asyncio.Task[Response]:
        """One turn in a task of its own; the caller awaits it."""
        return asyncio.create_task(self.chat(session_id, *messages, **fields))

    async def read(self, session_id: str, query: bytes = b"") -> dict[str, Any]:
        """The session as a GET shows it."""
        reply = await self.core.read(session_id, self.request(b"", query=query))
        found: dict[str, Any] = json.loads(await body_of(reply))
        return found

    async def contents(self, session_id: str) -> list[str]:
        """What the assistant said in each recorded turn."""
        records = (await self.read(session_id))["records"]
        return [record["response"]["choices"][0]["message"]["content"] for record in records]


def user(message: object) -> object:
    """A message; a str is the user's."""
    return {"role": "user", "content": message} if isinstance(message, str) else message


def assistant(text: str) -> dict[str, str]:
    """What the assistant said, as a client sends it back."""
    return {"role": "assistant", "content": text}


def is_recorded(response: Response) -> bool:
    """Whether a reply says that its turn is part of the session."""
    return "x-turn-recorded" not in response.headers


async def sent_by(response: Response) -> list[Message]:
    """The ASGI messages of a response to a client that stays."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    scope = {"type": "http", "method": "POST", "asgi": {"spec_version": "2.4"}}
    await response(scope, receive, send)
    return sent


async def body_of(response: Response) -> bytes:
    """The whole body of a response."""
    messages = await sent_by(response)
    return b"".join(bytes(m["body"]) for m in messages if m["type"] == "http.response.body")
