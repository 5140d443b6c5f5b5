"""How many turns and tokens a session holds, and whether it takes one more.

Counted are recorded turns, and their tokens, those that turns share once. A turn that replaces
another one therefore counts once too. The prompt decides before the engine is asked: a session
exceeds its tokens by what its last turn samples.

Must not know how turns run.

Spec: docs/sessions.md#session-limits
"""

from __future__ import annotations

from collections.abc import Sequence

from sessions.core.histories.checkpoint import Checkpoint, Plan
from sessions.core.open_sessions.session_options import SessionMode, SessionOptions
from sessions.errors.turns import TokenLimitError, TurnLimitError


class SessionLimits:
    """See the module docstring.

    Attributes:
        turn_count: Recorded turns.
        token_count: Their tokens, shared ones once.
    """

    def __init__(self, options: SessionOptions) -> None:
        self.turn_count = 0
        self.token_count = 0
        self._options = options

    def check_turn(self, plan: Plan, prompt_count: int) -> None:
        """Refuse a turn for which there is no room.

        Args:
            plan: How it attaches.
            prompt_count: Tokens of its prompt.

        Raises:
            TurnLimitError: The session may have no more turns.
            TokenLimitError: It may have no more tokens.
        """
        if not self._has_turns_for(plan):
            raise TurnLimitError(
                f"the session has {self.turn_count} turns and may have no more; open another one"
            )
        if not self._has_tokens_for(plan, prompt_count):
            raise TokenLimitError(
                f"with this prompt of {prompt_count} tokens the session reaches the"
                f" {self._options.max_session_tokens} tokens that it may have; open another one"
            )

    def has_room(self, plan: Plan, prompt_count: int) -> bool:
        """Whether one more turn may be recorded now: others may have been since it was checked.

        Args:
            plan: How it attaches.
            prompt_count: Tokens of its prompt.
        """
        return self._has_turns_for(plan) and self._has_tokens_for(plan, prompt_count)

    def count(self, plan: Plan, turn: Checkpoint, dropped: Sequence[Checkpoint]) -> None:
        """Note a turn that was recorded.

        Args:
            plan: How it attached.
            turn: The turn.
            dropped: The turns that it replaced, oldest first.
        """
        base_count = _length_of(plan.base)
        self.turn_count += 1 - len(dropped)
        self.token_count += len(turn.ids) - base_count
        if dropped:
            self.token_count -= len(dropped[-1].ids) - base_count

    def _has_turns_for(self, plan: Plan) -> bool:
        limit = self._options.max_turns
        return not limit or self.turn_count + (not self._replaces(plan)) <= limit

    def _has_tokens_for(self, plan: Plan, prompt_count: int) -> bool:
        limit = self._options.max_session_tokens
        return not limit or self._tokens_with(plan, prompt_count) < limit

    def _replaces(self, plan: Plan) -> bool:
        return self._options.mode is SessionMode.LINEAR and plan.base is not plan.head

    def _tokens_with(self, plan: Plan, prompt_count: int) -> int:
        if self._replaces(plan):
            return prompt_count
        return self.token_count + prompt_count - _length_of(plan.base)


def _length_of(checkpoint: Checkpoint | None) -> int:
    return len(checkpoint.ids) if checkpoint is not None else 0
