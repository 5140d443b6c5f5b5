"""What a session says of itself: its tokens, and how they differ from a rendering.

The comparison renders the whole history, so it is done when somebody reads, off the loop if it is
long, and kept for the checkpoint.

Must not know HTTP or records.

Spec: docs/sessions.md#metadata
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence

from sessions.core.histories.node import Node
from sessions.core.histories.tree_view import tree_of
from sessions.core.open_sessions.session import Session
from sessions.core.texts.json_text import JsonObject
from sessions.core.texts.off_loop import off_loop
from sessions.errors.client_visible import RequestError
from sessions.tokens.comparison import compare
from sessions.tokens.prompts import PromptBuilder


class SessionMetadata:
    """See the module docstring; shared by all sessions."""

    def __init__(self, prompts: PromptBuilder) -> None:
        self._prompts = prompts

    async def read(self, session: Session, nodes: Sequence[Node]) -> JsonObject:
        """The metadata of a session as it was at a moment.

        Args:
            session: The session.
            nodes: Its turns then, oldest first.
        """
        head = nodes[-1] if nodes else None
        found: JsonObject = {}
        if head is not None:
            found |= await self.mismatch_of(session, head)
        found["accumulated_token_ids"] = [] if head is None else head.checkpoint.token_ids.tolist()
        found["max_trim_tokens"] = self._prompts.family.max_trim_count
        if session.history.is_tree:
            found["tree"] = tree_of(nodes)
        if session.cancelled_turns:
            found["cancelled_turns"] = list(session.cancelled_turns)
        return found

    def teller_of(
        self, session: Session
    ) -> Callable[[Node], Coroutine[None, None, JsonObject]] | None:
        """What tells how a leaf differs from a rendering; None for a linear session.

        Args:
            session: The leaf's session.
        """
        if not session.history.is_tree:
            return None

        async def mismatch_of(leaf: Node) -> JsonObject:
            return await self.mismatch_of(session, leaf)

        return mismatch_of

    async def mismatch_of(self, session: Session, node: Node) -> JsonObject:
        """How the tokens of a turn differ from one rendering of its conversation.

        Args:
            session: The turn's session.
            node: The turn.

        Returns:
            `tito_session_mismatch`; nothing when the conversation cannot be rendered as a whole.
        """
        known = session.known_mismatch(node.checkpoint)
        if known is None:
            known = await off_loop(4 * len(node.checkpoint.ids), lambda: self._compare(node))
            session.keep_mismatch(node.checkpoint, known)
        return known

    def _compare(self, node: Node) -> JsonObject:
        last, family = node.checkpoint, self._prompts.family
        try:
            expected = self._prompts.whole(node.messages, last.tools, last.template_kwargs)
        except (RequestError, RecursionError):
            return {}
        mismatches = compare(expected, last.token_ids, family, self._prompts.tokenizer)
        return {"tito_session_mismatch": [mismatch.to_json() for mismatch in mismatches]}
