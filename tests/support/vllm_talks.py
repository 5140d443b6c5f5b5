"""Conversations with forced replies over a session server, and what must have come of them.

Spec: docs/engines.md#a-real-engine
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import numpy as np

from sessions.client.samples import Samples
from sessions.client.sync_client import SessionClient
from sessions.tokens.tokenizer import Tokenizer
from tests.support.vllm_engine import MODEL

END: Final = "<|im_end|>"
TOOLS: Final = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
_TIMEOUT_S: Final = 300.0


def spelled(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of a text, one per character but for special tokens and tags: not how it is encoded."""
    ids: list[int] = []
    for special in (*tokenizer.special_ids, ""):
        if special and text.startswith(special):
            return [tokenizer.special_ids[special], *spelled(tokenizer, text[len(special) :])]
    if text:
        ids = [*tokenizer.encode(text[0]), *spelled(tokenizer, text[1:])]
    return ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn as its client saw it.

    Attributes:
        forced: The ids that the engine was made to sample.
        message: What the assistant said.
        finish_reason: As told to the client.
    """

    forced: list[int]
    message: dict[str, Any]
    finish_reason: str


@dataclass(slots=True, kw_only=True)
class Talk:
    """A session on a server and its conversation so far.

    Attributes:
        messages: As an agent would send them back.
        turns: Those that were recorded.
    """

    url: str
    session_id: str
    tokenizer: Tokenizer
    messages: list[dict[str, Any]] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    @property
    def chat_url(self) -> str:
        """Where turns go."""
        return f"{self.url}/sessions/{self.session_id}/v1/chat/completions"

    def body(
        self, *new: dict[str, Any], forced: Sequence[int] = (), **fields: object
    ) -> dict[str, Any]:
        """A request that adds messages."""
        extra = {"vllm_xargs": {"force_ids": list(forced)}} if forced else {}
        return {"model": MODEL, "messages": [*self.messages, *new], **extra, **fields}

    def post(self, body: dict[str, Any]) -> httpx.Response:
        """Send a request; nothing is noted of it."""
        return httpx.post(self.chat_url, json=body, timeout=_TIMEOUT_S, trust_env=False)

    def say(
        self, *new: dict[str, Any], forced: Sequence[int] | str, **fields: object
    ) -> dict[str, Any]:
        """One turn that must be recorded; gives its message."""
        ids = self.tokenizer.encode(forced) if isinstance(forced, str) else list(forced)
        reply = self.post(self.body(*new, forced=ids, **fields))
        assert reply.status_code == 200, reply.text
        assert "x-turn-recorded" not in reply.headers
        (choice,) = reply.json()["choices"]
        self._note(new, ids, choice["message"], choice["finish_reason"])
        return dict(choice["message"])

    def stream(self, *new: dict[str, Any], forced: str, **fields: object) -> dict[str, Any]:
        """The same as a stream; gives the message put together from its deltas."""
        ids = self.tokenizer.encode(forced)
        reply = self.post(self.body(*new, forced=ids, stream=True, **fields))
        assert reply.status_code == 200, reply.text
        lines = [line[6:] for line in reply.text.splitlines() if line.startswith("data: ")]
        assert lines.pop() == "[DONE]"
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        finish = ""
        for line in lines:
            (choice,) = json.loads(line)["choices"]
            finish = choice["finish_reason"] or finish
            for name in ("content", "reasoning", "reasoning_content"):
                if choice["delta"].get(name):
                    message[name] = message.get(name, "") + choice["delta"][name]
        self._note(new, ids, message, finish)
        return message

    def records(self) -> list[dict[str, Any]]:
        """The session's records, with replay."""
        url = f"{self.url}/sessions/{self.session_id}"
        reply = httpx.get(url, timeout=_TIMEOUT_S, trust_env=False)
        assert reply.status_code == 200, reply.text
        found: list[dict[str, Any]] = reply.json()["records"]
        return found

    def samples(self) -> Samples:
        """The session as training samples."""
        with SessionClient(self.url) as client:
            return client.samples(self.session_id)

    def _note(
        self, new: Sequence[dict[str, Any]], ids: list[int], message: dict[str, Any], finish: str
    ) -> None:
        self.messages += [*new, message]
        self.turns.append(Turn(forced=ids, message=message, finish_reason=finish))


def open_talk(url: str, tokenizer: Tokenizer) -> Talk:
    """A new session."""
    created = httpx.post(f"{url}/sessions", timeout=_TIMEOUT_S, trust_env=False)
    assert created.status_code == 200, created.text
    return Talk(url=url, session_id=created.json()["session_id"], tokenizer=tokenizer)


def user(text: str) -> dict[str, Any]:
    """What a person says."""
    return {"role": "user", "content": text}


def prompt_in(record: dict[str, Any]) -> list[int]:
    """The ids that the engine was sent."""
    found: list[int] = record["request"]["kv_transfer_params"]["prompt_token_ids"]
    return found


def sampled_in(record: dict[str, Any]) -> list[int]:
    """The ids that it sampled."""
    found: list[int] = record["response"]["choices"][0]["token_ids"]
    return found


def log_probs_in(record: dict[str, Any]) -> list[float]:
    """Their log probabilities."""
    content = record["response"]["choices"][0]["logprobs"]["content"]
    return [entry["logprob"] for entry in content]


def experts_in(record: dict[str, Any]) -> np.ndarray:
    """The rows of experts in its reply."""
    text = record["response"]["choices"][0]["routed_experts"]
    rows: np.ndarray = np.load(io.BytesIO(base64.b64decode(text, validate=True)))
    return rows
