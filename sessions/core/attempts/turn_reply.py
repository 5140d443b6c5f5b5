"""What a turn gave, for every client that waited for it.

Must not know how turns run.

Spec: docs/sessions.md#replies
"""

from __future__ import annotations

from dataclasses import dataclass

from sessions.core.histories.checkpoint import Checkpoint
from sessions.engine.engine import EngineReply


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnReply:
    """What the client of a turn gets.

    Attributes:
        engine: The engine's reply; its status and headers count, its body if it refused.
        body: The rendered turn, JSON or events; None if the engine refused.
        turn: The turn, if it is part of the session now.
        former_heads: Checkpoints that were the newest ones of their branch before it: the one that
            it builds on and those that it replaces.
    """

    engine: EngineReply
    body: bytes | None
    turn: Checkpoint | None = None
    former_heads: tuple[Checkpoint, ...] = ()

    @property
    def is_recorded(self) -> bool:
        """Whether the turn is part of the session."""
        return self.turn is not None
