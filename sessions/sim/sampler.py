"""Samples a reply: token ids with their log-probabilities, and why it ended.

The text of a reply is encoded as one piece and the stop token is added, so the ids are the ones a
tokenizer would make of the text they decode to. What a limit or a stop string cuts off is cut from
the ids; the message is then parsed out of the decoded rest, as an engine parses it.

Must not know HTTP or the form of replies.

Spec: docs/sim.md#replies
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sessions.errors.unseen import SettingsError, SimRefusalError
from sessions.sim.body import ChatBody
from sessions.sim.chatml import (
    THINK_END,
    TURN_END,
    Utterance,
    parse_reply,
    prompt_text,
    reply_text,
)
from sessions.sim.improvisation import utterance_of
from sessions.sim.options import Dialect, SimOptions
from sessions.sim.vllm_parsers import parse_vllm_reply
from sessions.tokens.tokenizer import Tokenizer

_TAIL: Final = 4  # ids at a prompt's end among which the end of an empty think block is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Why a reply ended.

    Attributes:
        reason: `stop`, `length`, `tool_calls`, or whatever was scripted.
        matched: The stop token's id or the stop string, else None.
    """

    reason: str
    matched: int | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One choice.

    Attributes:
        ids: Sampled token ids, the stop token included if one was sampled.
        logprobs: One per id, each <= 0.
        said: The message, parsed out of the decoded ids.
        finish: Why it ended.
        mark: 16 hex digits that the ids of its tool calls start with.
    """

    ids: list[int]
    logprobs: list[float]
    said: Utterance
    finish: Finish
    mark: str


class Sampler:
    """Makes prompts and samples; keeps the text of every token it has shown."""

    def __init__(self, options: SimOptions, tokenizer: Tokenizer) -> None:
        """Check the tokenizer.

        Args:
            options: Of the engine.
            tokenizer: Must have the ChatML stop token as a special token.

        Raises:
            SettingsError: It has not.
        """
        if TURN_END not in tokenizer.special_ids:
            raise SettingsError(f"the simulated engine needs a tokenizer with {TURN_END}")
        self._options = options
        self._tokenizer = tokenizer
        self._stop_id = tokenizer.special_ids[TURN_END]
        self._think_end_id = tokenizer.special_ids.get(THINK_END)
        self._texts: dict[int, str] = {}  # bounded by the vocabulary
        # Replies are noise, not secrets; without a seed they must differ.
        self._noise = random.Random()  # noqa: S311 - see above

    def prompt_of(self, body: ChatBody) -> list[int]:
        """The prompt's ids: the request's own, or a plain ChatML prompt of its messages."""
        if body.input_ids is not None:
            return body.input_ids
        text = prompt_text(body.messages, thinking=body.may_think)
        return self._tokenizer.encode(text)

    def cached_count(self, body: ChatBody, prompt: Sequence[int]) -> int:
        """Prompt tokens that a prefix cache would hold: those up to the last reply's end."""
        roles = [message.get("role") for message in body.messages]
        if "assistant" not in roles:
            return 0
        last_reply = len(roles) - 1 - roles[::-1].index("assistant")
        turns = 0  # after the last reply; results of one reply's calls are one turn
        for index in range(last_reply + 1, len(roles)):
            turns += not (roles[index] == "tool" == roles[index - 1])
        for index in range(len(prompt) - 1, -1, -1):
            if prompt[index] == self._stop_id:
                turns -= 1
                if turns < 0:
                    return index + 1
        return 0

    def room_for(self, body: ChatBody, prompt_count: int) -> int:
        """Tokens that the completion may have.

        Args:
            body: The request.
            prompt_count: Its prompt's tokens.

        Returns:
            The request's limit, or what the context leaves.

        Raises:
            SimRefusalError: 400: the prompt, or the prompt with the limit, exceeds the context.
        """
        context = self._options.context
        if self._options.dialect is Dialect.VLLM:
            return _vllm_room(context, body.completion_limit, prompt_count)
        if prompt_count >= context:
            raise SimRefusalError(
                f"The input ({prompt_count} tokens) is longer than the model's context length "
                f"({context} tokens)."
            )
        limit = body.completion_limit
        if limit is None:
            return context - prompt_count
        if prompt_count + limit > context:
            raise SimRefusalError(
                f"Requested token count exceeds the model's maximum context length of {context} "
                f"tokens: {prompt_count} in the input and {limit} for the completion."
            )
        return limit

    def sample(self, body: ChatBody, prompt: Sequence[int], index: int, room: int) -> Sample:
        """Sample one choice.

        Args:
            body: The request.
            prompt: Its ids.
            index: Of the choice, from 0; each is different.
            room: Most tokens to sample.

        Returns:
            The choice. Without a seed equal arguments give different ones.
        """
        rng = self._rng_of(body, index)
        ids, finish = self._sampled_ids(body, prompt, rng)
        if len(ids) > room:
            ids, finish = ids[:room], Finish(reason="length")
        text = self._decode(body, ids)
        seen = [stop for stop in body.stops if stop in text]
        if seen:
            stop = min(seen, key=lambda each: text.index(each) + len(each))
            ids, finish = self._cut_after(ids, stop), Finish(reason="stop", matched=stop)
            text = text[: text.index(stop) + (len(stop) if body.no_stop_trim else 0)]
        said = self._parse(body, text)
        # SGLang tells a cut as a cut; vLLM only that there are calls, and the stop string besides.
        if said.calls and self._options.dialect is Dialect.VLLM:
            finish = replace(finish, reason="tool_calls")
        elif said.calls and finish.reason == "stop":
            finish = Finish(reason="tool_calls")
        if body.script.finish_reason is not None:
            finish = replace(finish, reason=body.script.finish_reason)
        logprobs = [round(-rng.expovariate(2.0), 6) for _ in ids]
        mark = f"{rng.getrandbits(64):016x}"
        return Sample(ids=ids, logprobs=logprobs, said=said, finish=finish, mark=mark)

    def _parse(self, body: ChatBody, text: str) -> Utterance:
        if self._options.dialect is Dialect.VLLM:
            return parse_vllm_reply(text, calls=body.may_call, thinking=body.may_think)
        return parse_reply(text, calls=body.may_call)

    def token_text(self, token_id: int) -> str:
        """The text of one token alone."""
        found = self._texts.get(token_id)
        if found is None:
            found = self._texts[token_id] = self._tokenizer.decode([token_id])
        return found

    def _rng_of(self, body: ChatBody, index: int) -> random.Random:
        if body.seed is None:
            return random.Random(self._noise.getrandbits(64))  # noqa: S311 - no secret
        return random.Random(f"{body.seed}:{index}:{len(body.messages)}")  # noqa: S311 - no secret

    def _sampled_ids(
        self, body: ChatBody, prompt: Sequence[int], rng: random.Random
    ) -> tuple[list[int], Finish]:
        script = body.script
        if script.token_ids is not None:
            ids = list(script.token_ids)
            if ids and ids[-1] == self._stop_id:
                return ids, Finish(reason="stop", matched=self._stop_id)
            return ids, Finish(reason="length")
        forced = script.force_ids
        if forced is not None:
            end = forced.index(self._stop_id) if self._stop_id in forced else None
            ids = [*forced[:end], self._stop_id]
            return ids, Finish(reason="stop", matched=self._stop_id)
        thinking = body.may_think and self._think_end_id not in prompt[-_TAIL:]
        ids = self._tokenizer.encode(
            reply_text(utterance_of(body, self._options, rng, thinking=thinking))
        )
        if script.finish_reason in {None, "stop", "tool_calls"}:
            return [*ids, self._stop_id], Finish(reason="stop", matched=self._stop_id)
        return ids, Finish(reason="length")

    def _decode(self, body: ChatBody, ids: Sequence[int]) -> str:
        """The text of a reply; its stop token shows only if the request keeps special tokens."""
        kept = body.no_stop_trim and body.skip_special_tokens is False
        if ids and ids[-1] == self._stop_id and not kept:
            ids = ids[:-1]
        return self._tokenizer.decode(ids)

    def _cut_after(self, ids: list[int], stop: str) -> list[int]:
        """The fewest of the ids whose text has the stop string."""
        low, high = 1, len(ids)
        while low < high:
            middle = (low + high) // 2
            if stop in self._tokenizer.decode(ids[:middle]):
                high = middle
            else:
                low = middle + 1
        return ids[:low]


def _vllm_room(context: int, limit: int | None, prompt_count: int) -> int:
    """The limit, cut to what the context leaves.

    Raises:
        SimRefusalError: 400: the prompt or the limit alone exceeds the context, or nothing is left.
    """
    if prompt_count > context:
        raise SimRefusalError(
            f"Input length ({prompt_count}) exceeds model's maximum context length ({context})."
        )
    if limit is not None and limit > context:
        raise SimRefusalError(
            f"max_tokens={limit} cannot be greater than max_model_len=max_total_tokens={context}."
            f" Please request fewer output tokens. (parameter=max_tokens, value={limit})",
            param="max_tokens",
        )
    room = context - prompt_count if limit is None else min(limit, context - prompt_count)
    if room < 1:
        raise SimRefusalError(
            f"max_tokens must be at least 1, got {room}. (parameter=max_tokens, value={room})",
            param="max_tokens",
        )
    return room
