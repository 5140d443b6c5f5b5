"""Prompts as token ids: the whole of a first turn, only the new messages of every later one.

The first prompt is the rendered conversation, encoded. A later prompt is the checkpoint (the exact
tokens of the turns before) and a suffix for the messages that came since. The suffix is what these
messages add to a short preamble: the template renders `[preamble]` and `[preamble, new messages]`,
and the second text must extend the first. So the cost of a turn follows its new messages, not its
history, and no sampled token is ever decoded and encoded again. The preamble's assistant message
carries the tool calls of the reply that is answered, because templates look them up.

Where checkpoint and suffix meet, the family's boundary rule puts in what the template writes after
a sampled turn, or takes out a token that would stand there twice.

Must not know sessions, roll-back or the engine.

Spec: docs/sessions.md#prompts
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sessions.errors.client_visible import RequestError, UnprocessableError
from sessions.errors.turns import RoleNotAppendableError, UnrenderableMessageError
from sessions.errors.unseen import SettingsError
from sessions.tokens.families.declaration import Family
from sessions.tokens.families.detection import Traits, contradicts, detect_family
from sessions.tokens.families.table import AUTO, DEFAULT, family_of
from sessions.tokens.messages import Message, normalise_messages
from sessions.tokens.rendering import Rendering
from sessions.tokens.template_kwargs import template_kwargs_of
from sessions.tokens.templates import (
    Template,
    native_text_of,
    read_native_template,
    read_shipped_template,
)
from sessions.tokens.tokenizer import PACKAGE_PREFIX, Tokenizer, load_tokenizer
from sessions.tokens.typescript import typescript_of

_log = logging.getLogger("sessions.tokens")

# Conversations that end in an assistant message; templates differ in which they accept (some know
# no system message, some want a question first).
_PREAMBLES: Final = (
    ("system", "assistant"),
    ("user", "assistant"),
    ("system", "user", "assistant"),
)
_DUMMIES: Final[Mapping[str, dict[str, object]]] = {
    "system": {"role": "system", "content": "x"},
    "user": {"role": "user", "content": "x"},
    # The reasoning is not empty: a template may leave an empty think block out.
    "assistant": {"role": "assistant", "content": "", "reasoning_content": " "},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """How a later prompt follows from a checkpoint.

    Attributes:
        kept_count: How many of the checkpoint's tokens it begins with.
        added_ids: The tokens that follow them.
    """

    kept_count: int
    added_ids: list[int]


class PromptBuilder:
    """Makes prompts for one tokenizer, family and template; holds no session's state."""

    def __init__(self, tokenizer: Tokenizer, family: Family, template: Template) -> None:
        """Look up the family's token ids and find the preamble that the template accepts.

        Raises:
            SettingsError: The tokenizer lacks a token of the family, or the template accepts no
                preamble.
        """
        self.tokenizer: Final = tokenizer
        self.family: Final = family
        self._template = template
        self._end_of_turn = self._id_of(family.end_of_turn) if family.end_of_turn else None
        self._after_turn = tokenizer.encode(family.after_turn)
        self._shared = frozenset(self._id_of(text) for text in family.shared_tokens)
        self._preamble = self._find_preamble()

    def template_kwargs_of(self, requested: object) -> dict[str, object]:
        """Template kwargs of a request, with those that the family fixes or computes.

        Args:
            requested: The request's `chat_template_kwargs`, or None; or what this gave before.

        Raises:
            BadTemplateKwargsError: It is no object, contradicts a fixed value or itself, or names
                something that the template gets from elsewhere.
        """
        return template_kwargs_of(self.family, requested)

    def first(
        self,
        messages: Sequence[Message],
        tools: Sequence[object] | None = None,
        template_kwargs: Mapping[str, object] | None = None,
    ) -> list[int]:
        """The prompt of a first turn: all messages and the place where the assistant speaks.

        Args:
            messages: The request's messages, as the client sent them; not changed.
            tools: The request's tools.
            template_kwargs: The request's `chat_template_kwargs`.

        Returns:
            Token ids.

        Raises:
            RequestError: The messages or tools cannot be rendered; `param` names the place.
        """
        return self._whole(messages, tools, template_kwargs, add_generation_prompt=True)

    def whole(
        self,
        messages: Sequence[Message],
        tools: Sequence[object] | None = None,
        template_kwargs: Mapping[str, object] | None = None,
    ) -> list[int]:
        """A finished conversation as the template writes it, to compare a checkpoint with.

        Arguments, result and errors are those of `first`. Costs O(all messages).
        """
        return self._whole(messages, tools, template_kwargs, add_generation_prompt=False)

    def join(
        self,
        checkpoint: Sequence[int],
        last_assistant: Message,
        appended: Sequence[Message],
        tools: Sequence[object] | None = None,
        template_kwargs: Mapping[str, object] | None = None,
        *,
        offset: int = 0,
    ) -> Joint:
        """The prompt of a later turn, as what it adds to the checkpoint.

        Args:
            checkpoint: Token ids of everything before, up to the last sampled token.
            last_assistant: The message that was sampled at the end of the checkpoint.
            appended: The messages since then; none asks for a new reply.
            tools: The request's tools.
            template_kwargs: The request's `chat_template_kwargs`.
            offset: Index in the request of the first appended message, for error messages.

        Returns:
            It keeps the checkpoint without at most `family.max_trim_count` last tokens, and adds
            the tokens of the appended messages and the place where the assistant speaks. Costs
            O(appended messages + tools).

        Raises:
            RoleNotAppendableError: The family cannot append a message of that role.
            RequestError: The messages or tools cannot be rendered; `param` names the place.
            UnprocessableError: The template rewrites what is before the appended messages.
        """
        kwargs = self.template_kwargs_of(template_kwargs)
        new = normalise_messages(appended, offset=offset)
        for index, message in enumerate(new, offset):
            if message["role"] not in self.family.append_roles:
                roles = ", ".join(sorted(self.family.append_roles))
                raise RoleNotAppendableError(
                    f"messages[{index}] may not follow a reply: its role must be one of {roles}",
                    param=f"messages[{index}].role",
                )
        preamble = self._preamble_for(last_assistant)
        rendering = self._rendering(tools, kwargs)
        before = rendering.text(preamble, add_generation_prompt=False, own_count=len(preamble))
        after = rendering.text(
            [*preamble, *new],
            add_generation_prompt=True,
            own_count=len(preamble),
            offset=offset,
        )
        if not after.startswith(before):
            raise UnprocessableError(
                f"the chat template rewrites the turns before messages[{offset}]", param="messages"
            )
        return self._merge(checkpoint, self.tokenizer.encode(after[len(before) :]))

    def next(
        self,
        checkpoint: Sequence[int],
        last_assistant: Message,
        appended: Sequence[Message],
        tools: Sequence[object] | None = None,
        template_kwargs: Mapping[str, object] | None = None,
        *,
        offset: int = 0,
    ) -> list[int]:
        """The prompt of a later turn as a new list; arguments and errors are those of `join`."""
        joint = self.join(
            checkpoint, last_assistant, appended, tools, template_kwargs, offset=offset
        )
        return [*checkpoint[: joint.kept_count], *joint.added_ids]

    def _whole(
        self,
        messages: Sequence[Message],
        tools: Sequence[object] | None,
        template_kwargs: Mapping[str, object] | None,
        *,
        add_generation_prompt: bool,
    ) -> list[int]:
        kwargs = self.template_kwargs_of(template_kwargs)
        known = normalise_messages(messages)
        if not known:
            raise RequestError("messages must not be empty", param="messages")
        rendering = self._rendering(tools, kwargs)
        text = rendering.text(known, add_generation_prompt=add_generation_prompt)
        return self.tokenizer.encode(text)

    def _rendering(self, tools: object, kwargs: Mapping[str, object]) -> Rendering:
        """A request's way through the template, with its tools in the spelling of the family."""
        name = self.family.typescript_kwarg
        told = typescript_of(tools) if name and name not in kwargs else None
        return Rendering(self._template, tools, kwargs if told is None else {**kwargs, name: told})

    def _merge(self, checkpoint: Sequence[int], suffix: list[int]) -> Joint:
        kept = len(checkpoint)
        if kept and checkpoint[kept - 1] in self._shared:
            kept -= 1
        if kept and checkpoint[kept - 1] == self._end_of_turn:
            return Joint(kept_count=kept, added_ids=self._after_turn + suffix)
        return Joint(kept_count=kept, added_ids=suffix)

    def _preamble_for(self, last_assistant: Message) -> list[dict[str, object]]:
        """The preamble with the reply's tool calls, their arguments left out.

        What renders a tool result looks for the call's id or name. Arguments may be large, and a
        model may have sampled some that a template cannot render.
        """
        calls = normalise_messages([last_assistant])[0].get("tool_calls")
        if not isinstance(calls, list):
            return self._preamble
        bare = [{**call, "function": {**call["function"], "arguments": {}}} for call in calls]
        return [*self._preamble[:-1], {**self._preamble[-1], "tool_calls": bare}]

    def _find_preamble(self) -> list[dict[str, object]]:
        rendering = self._rendering(None, self.template_kwargs_of(None))
        reasons = []
        for roles in _PREAMBLES:
            preamble = [_DUMMIES[role] for role in roles]
            try:
                before = rendering.text(preamble, add_generation_prompt=False)
                after = rendering.text([*preamble, _DUMMIES["user"]], add_generation_prompt=True)
            except UnrenderableMessageError as error:
                reasons.append(error.message)
                continue
            if after.startswith(before):
                return preamble
            reasons.append("it rewrites earlier turns when a message is appended")
        raise SettingsError(f"the chat template cannot be used turn by turn: {reasons[0]}")

    def _id_of(self, text: str) -> int:
        found = self.tokenizer.encode(text)
        if len(found) != 1:
            raise SettingsError(
                f"the tokenizer has no token {text!r}, which the family {self.family.name} needs"
            )
        return found[0]


def load_prompt_builder(tokenizer_name: str, family_name: str = AUTO) -> PromptBuilder:
    """Load all that prompts need.

    Args:
        tokenizer_name: See `load_tokenizer`.
        family_name: A family's name, or `auto` to pick it by the tokenizer's special tokens and
            the model's own template. What was picked, and why, goes to the log; so does a name
            that they contradict.

    Raises:
        SettingsError: The tokenizer, the family or its template cannot be had; one line.
    """
    tokenizer = load_tokenizer(tokenizer_name)
    folder = _folder_of(tokenizer_name)
    traits = Traits(
        special_ids=tokenizer.special_ids,
        template=None if folder is None else native_text_of(folder),
        is_complete=folder is not None,
    )
    family = _pick_family(traits) if family_name == AUTO else _named_family(family_name, traits)
    return PromptBuilder(tokenizer, family, _template_of(family, tokenizer_name))


def _pick_family(traits: Traits) -> Family:
    detection = detect_family(traits)
    level = logging.INFO if detection.is_sure else logging.WARNING
    rivals = ",".join(rival.name for rival in detection.rivals)
    _log.log(
        level,
        "tito family picked family=%s reason=%r also_fits=%s",
        detection.family.name,
        detection.reason,
        rivals or "none",
    )
    return detection.family


def _named_family(name: str, traits: Traits) -> Family:
    """The family of a name; warns if the model is clearly of another one."""
    family = family_of(name)
    detection = detect_family(traits)
    if detection.family is not DEFAULT and contradicts(family, traits):
        _log.warning(
            "tito family is not what the model looks like family=%s looks_like=%s reason=%r",
            name,
            detection.family.name,
            detection.reason,
        )
    return family


def _template_of(family: Family, tokenizer_name: str) -> Template:
    if family.template is not None:
        return read_shipped_template(family.template, family.template_texts)
    folder = _folder_of(tokenizer_name)
    if folder is None:
        raise SettingsError(
            f"the TITO family {family.name} takes the model's own chat template, "
            f"but {tokenizer_name} brings none"
        )
    return read_native_template(folder)


def _folder_of(tokenizer_name: str) -> Path | None:
    """Where a model's files are; None for packaged ranks."""
    if tokenizer_name.startswith(PACKAGE_PREFIX):
        return None
    path = Path(tokenizer_name)
    return path if path.is_dir() else path.parent
