"""Preparing a turn: how it attaches, its prompt, and the body that the engine gets.

Nothing of the session is changed, so a request that cannot be served leaves no trace.

Must not know engines or how turns are committed.

Spec: docs/sessions.md#turns
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from sessions.core.dialects.dialect import EngineDialect, ReplayWish
from sessions.core.engine_replies.turn_facts import ROUTED_EXPERTS
from sessions.core.forms.chat_request import ChatRequest
from sessions.core.histories.checkpoint import Plan
from sessions.core.histories.history import History
from sessions.core.texts.json_text import JsonObject, render_json
from sessions.core.texts.off_loop import off_loop
from sessions.core.texts.shared_text import IdsText
from sessions.core.turns.engine_body import EngineBody, engine_body_of
from sessions.errors.client_visible import InternalError, RequestError
from sessions.tokens.prompts import PromptBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRules:
    """What the settings decide about routing replay.

    Attributes:
        is_wanted: Ask the engine for routed experts.
        is_incremental: Only for those of tokens that it did not give before.
        layers: Layers of a row; 0 if unknown.
    """

    is_wanted: bool = False
    is_incremental: bool = False
    layers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTurn:
    """A turn that the engine can be asked for.

    Attributes:
        plan: How it attaches to the session.
        dialect: Of the engine that it is for.
        prompt_ids: The prompt.
        prompt_text: The same as JSON text.
        template_kwargs: The kwargs that it was rendered with.
        replay_start: First row of routed experts that is asked for.
        engine_body: What the engine gets.
    """

    plan: Plan
    dialect: EngineDialect
    prompt_ids: array[int]
    prompt_text: IdsText
    template_kwargs: JsonObject
    replay_start: int
    engine_body: EngineBody


class TurnPreparer:
    """See the module docstring; shared by all sessions, holds no state of any."""

    def __init__(self, *, prompts: PromptBuilder, rules: ReplayRules) -> None:
        self._prompts = prompts
        self._rules = rules

    async def prepare(
        self, history: History, chat: ChatRequest, dialect: EngineDialect
    ) -> PreparedTurn:
        """Prepare a turn; nothing is changed. Long texts are rendered in a thread.

        Args:
            history: The session's; not to be changed meanwhile.
            chat: The client's request.
            dialect: Of the engine.

        Raises:
            RequestError: No prompt can be made of it; see `History.plan` and `PromptBuilder`.
            InternalError: The prompt would change what was sampled, or has an id that is none.
        """
        try:
            plan = history.plan(chat.messages)
            size = len(render_json([plan.tail, chat.tools]))
            return await off_loop(size, lambda: self._build(plan, chat, dialect))
        except RecursionError as error:
            raise RequestError("the body is nested too deeply") from error

    def _build(self, plan: Plan, chat: ChatRequest, dialect: EngineDialect) -> PreparedTurn:
        base = plan.base
        kwargs = self._prompts.template_kwargs_of(chat.template_kwargs)
        if base is None:
            first = self._prompts.first(plan.tail, chat.tools, chat.template_kwargs)
            self._check_ids(first)
            prompt = array("I", first)
            text = IdsText().followed(prompt, 0)
        else:
            checkpoint = base.token_ids
            joint = self._prompts.join(
                checkpoint,
                plan.stored[-1],
                plan.tail,
                chat.tools,
                chat.template_kwargs,
                offset=len(plan.stored),
            )
            self._check_ids(joint.added_ids)
            prompt = checkpoint[: joint.kept_count]
            prompt.extend(joint.added_ids)
            self._check_prefix(checkpoint, prompt)
            text = base.ids_text.followed(prompt, joint.kept_count)
        start = self._replay_start_of(plan)
        body = engine_body_of(
            chat,
            dialect,
            prompt=text,
            template_kwargs=kwargs,
            replay=ReplayWish(is_wanted=self._rules.is_wanted, start_row=start),
            earlier_messages=base.messages_text if base is not None else (),
        )
        return PreparedTurn(
            plan=plan,
            dialect=dialect,
            prompt_ids=prompt,
            prompt_text=text,
            template_kwargs=kwargs,
            replay_start=start,
            engine_body=body,
        )

    def _replay_start_of(self, plan: Plan) -> int:
        """The first row to ask for: all, unless the turns before gave theirs.

        A turn has a row for each of its tokens but the last. If joining may drop tokens of the
        checkpoint, rows of dropped tokens would be in the way, so all are asked for.
        """
        base = plan.base
        if not self._rules.is_incremental or base is None or self._prompts.family.max_trim_count:
            return 0
        has_rows = ROUTED_EXPERTS in base.facts.replay and not base.facts.replay_error
        return len(base.ids) - 1 if has_rows else 0

    def _check_ids(self, encoded: Sequence[int]) -> None:
        """Engines differ in what they do with an id that is none; one hangs for ever.

        Ids of earlier turns are not looked at: some are the engine's own, and its vocabulary may
        be larger than the tokenizer's.
        """
        limit = self._prompts.tokenizer.vocab_size
        # A long first prompt has so many that only a look at all of them at once is cheap.
        if not encoded or (
            {*map(type, encoded)} == {int} and 0 <= min(encoded) <= max(encoded) < limit
        ):
            return
        wrong = next(i for i in encoded if type(i) is not int or not 0 <= i < limit)
        raise InternalError(f"the prompt has {wrong!r}, which is no token id")

    def _check_prefix(self, checkpoint: array[int], prompt: array[int]) -> None:
        """The promise of the product, checked on every turn: nothing sampled is changed."""
        kept = len(checkpoint) - self._prompts.family.max_trim_count
        if prompt[:kept] != checkpoint[:kept]:
            raise InternalError("the new prompt does not begin with the tokens of the last turn")
