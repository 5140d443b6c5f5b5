"""What a session says of itself: its tokens, and how they differ from a rendering.

The comparison renders the whole history, so it is done when somebody reads, off the loop if it is
long, and kept for the checkpoint.

Must not know HTTP or records.

Spec: docs/sessions.md#metadata
"""

from __future__ import annotations

from sessions.core.histories.checkpoint import Checkpoint
from sessions.core.json_text import JsonObject
from sessions.core.session import Session
from sessions.core.turn_preparer import off_loop
from sessions.errors import RequestError
from sessions.tokens.comparison import compare
from sessions.tokens.prompts import PromptBuilder


class SessionMetadata:
    """See the module docstring; shared by all sessions."""

    def __init__(self, prompts: PromptBuilder) -> None:
        self._prompts = prompts

    async def read(
        self, session: Session, messages: list[JsonObject], head: Checkpoint | None
    ) -> JsonObject:
        """The metadata of a session as it was at a moment.

        Args:
            session: The session.
            messages: Its history then.
            head: Its newest checkpoint then.
        """
        found: JsonObject = {}
        if head is not None:
            known = session.known_mismatch(head)
            found |= await self._compare(session, messages, head) if known is None else known
        found["accumulated_token_ids"] = head.token_ids.tolist() if head is not None else []
        found["max_trim_tokens"] = self._prompts.family.max_trim_count
        if session.cancelled_turns:
            found["cancelled_turns"] = list(session.cancelled_turns)
        return found

    async def _compare(
        self, session: Session, messages: list[JsonObject], head: Checkpoint
    ) -> JsonObject:
        """The mismatch list, or nothing when the history cannot be rendered as a whole."""
        family, tokenizer = self._prompts.family, self._prompts.tokenizer

        def work() -> JsonObject:
            try:
                expected = self._prompts.whole(messages, head.tools, head.template_kwargs)
            except (RequestError, RecursionError):
                return {}
            mismatches = compare(expected, head.token_ids, family, tokenizer)
            return {"tito_session_mismatch": [mismatch.to_json() for mismatch in mismatches]}

        found = await off_loop(4 * len(head.token_ids), work)
        session.keep_mismatch(head, found)
        return found
