"""One session in the model of conversations: its model, its agent, and what a GET of it must show.

Spec: docs/sessions.md#model
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from sessions.client.answers import prompt_ids, sampled_ids
from tests.support.talk_client import Client, bare
from tests.support.talk_model import TOOL, Message, SessionModel, Turn

OWN_TEMPERATURE: Final = 0.25
CLIENTS_TEMPERATURE: Final = 1.0


@dataclass(slots=True, kw_only=True)
class Talk:
    """One session: its place, its model, and what its agent remembers.

    Attributes:
        lost: The last conversation whose reply was not recorded.
    """

    path: str
    model: SessionModel
    temperature: float
    clients: list[Client] = field(default_factory=list)
    lost: list[Message] = field(default_factory=list)

    @property
    def mode(self) -> str:
        """For the count."""
        return "tree" if self.model.is_tree else "linear"

    def waiting_for(self, turn: Turn) -> list[Client]:
        """The clients of a turn in flight."""
        return [client for client in self.clients if client.turn is turn]

    def request(self, shape: str, said: str, form: str) -> tuple[bytes, list[Message]]:
        """The body of an attempt, and its messages; see `talk_scripts.SHAPES`."""
        model = self.model
        known = [*model.turns, *(model.running if shape == "again" else [])]
        if shape in ("again", "repeat", "retry") and known:
            return known[-1].body, known[-1].sent
        sent = self._conversation(shape, said)
        body: dict[str, Any] = {"model": "sim", "messages": sent}
        body |= {"temperature": CLIENTS_TEMPERATURE, "stream": form == "stream"}
        body |= {"tools": [TOOL]} if model.has_tools else {}
        return json.dumps(body).encode(), sent

    def mark(self, shape: str, mark: str) -> str:
        """How an attempt is marked; a retry has the key that its turn had."""
        if shape != "retry" or self.model.head is None:
            return mark
        return self.model.head.key or "again"

    def _conversation(self, shape: str, said: str) -> list[Message]:
        turns, model = self.model.turns, self.model
        base = None if shape == "root" else model.head
        if shape == "other" and turns:
            base = turns[len(turns) // 2]
        for _ in range({"back": 1, "deep": 2}.get(shape, 0)):
            base = base.base if base is not None else None
        path = base.conversation if base is not None else []
        if shape == "lost" and self.lost:
            path = self.lost
        if shape == "edited" and path:
            path = [*path[:-1], {"role": "assistant", "content": "edited"}]
        if path and (calls := path[-1].get("tool_calls")):
            return [*path, {"role": "tool", "tool_call_id": calls[0]["id"], "content": said}]
        return [*path, {"role": "user", "content": said}]


def shown_by(found: dict[str, Any]) -> dict[str, Any]:
    """What the model knows of the reply to a GET."""
    metadata = found["metadata"]
    leaves = metadata["tree"]["leaves"] if "tree" in metadata else None
    return {
        "records": [_shown(record) for record in found["records"]],
        "newest": metadata["accumulated_token_ids"],
        "leaves": leaves and [leaf["node_id"] for leaf in leaves],
    }


def due_of(talk: Talk) -> dict[str, Any]:
    """What a GET must show."""
    turns = talk.model.turns
    bases = [turn.base for turn in turns]
    leaves = [f"n{seq}" for seq, turn in enumerate(turns) if turn not in bases]
    return {
        "records": [_due(talk, turn) for turn in turns],
        "newest": turns[-1].tokens if turns else [],
        "leaves": leaves if talk.model.is_tree else None,
    }


def _shown(record: dict[str, Any]) -> dict[str, Any]:
    """What the model knows of a record."""
    choice = record["response"]["choices"][0]
    return {
        "prompt": prompt_ids(record),
        "sampled": sampled_ids(record),
        "conversation": [_plain(m) for m in [*record["request"]["messages"], choice["message"]]],
        "finish": record["finish_reason"],
        "partial": record.get("partial", False),
        "temperature": record["request"]["temperature"],
        "node": record.get("node"),
    }


def _due(talk: Talk, turn: Turn) -> dict[str, Any]:
    model = talk.model
    assert turn.said is not None
    node = None
    if model.is_tree:
        seq = model.turns.index(turn)
        parent = f"n{model.turns.index(turn.base)}" if turn.base is not None else None
        node = {"id": f"n{seq}", "parent": parent, "seq": seq}
    return {
        "prompt": turn.prompt,
        "sampled": turn.sampled,
        "conversation": [_plain(message) for message in turn.conversation],
        "finish": turn.said.finish,
        "partial": turn.said.finish in ("length", "abort"),
        "temperature": talk.temperature,
        "node": node,
    }


def _plain(message: Message) -> Message:
    return {name: value for name, value in bare(message).items() if value}
