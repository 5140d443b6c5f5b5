"""What one session must hold and what each attempt at it must get: the contract in a page.

A session is a list of recorded turns and a list of turns in flight. `attempt` says what a request
is: refused, a new turn, one more client of a turn in flight, or a repeat of a recorded one. `end`
says what becomes of a turn that the engine has answered. Everything else is comparing.

Must not know the server's code; the tokenizer alone is shared.

Spec: docs/sessions.md#model
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Message = dict[str, Any]
Encode = Callable[[str], list[int]]

TOOL: Final = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
_END: Final = "<|im_end|>"
MAX_TREE_TURNS: Final = 6  # as the groups are started
_REPLIES_KEPT: Final = 16  # as docs/sessions.md says
_COMPARED: Final = ("role", "content", "reasoning_content", "tool_calls")
_TOOLS_TEXT: Final = """<|im_start|>system
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
%s
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the engine samples.

    Attributes:
        text: As sampled, without a stop token.
        reply: The message that clients get; ids of calls are the engine's, `""` here.
        finish: Why it ends.
    """

    text: str
    reply: Message
    finish: str


@dataclass(slots=True, eq=False)
class Turn:
    """A turn in flight or recorded; `said`, `sampled` are there once the engine answered."""

    name: str
    body: bytes
    key: str
    sent: list[Message]
    base: Turn | None
    head: Turn | None  # the newest turn when this one began
    prompt: list[int]
    said: Said | None = None
    reply: Message = field(default_factory=dict)
    sampled: list[int] = field(default_factory=list)

    @property
    def conversation(self) -> list[Message]:
        """All messages, the reply last."""
        return [*self.sent, self.reply]

    @property
    def is_cut(self) -> bool:
        """Whether its reply was cut off at its limit of tokens."""
        return self.said is not None and self.said.finish == "length"

    @property
    def tokens(self) -> list[int]:
        """All tokens, the sampled ones last."""
        return self.prompt + self.sampled


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an attempt is: refused with a code, or part of a turn in one of three ways."""

    is_: str  # refused, begins, joins, again
    turn: Turn | None = None
    status: int = 200
    code: str = ""


@dataclass(slots=True)
class SessionModel:
    """One session. Limits of 0 are none."""

    encode: Encode
    is_tree: bool = False
    has_tools: bool = False
    max_turns: int = 0
    max_tokens: int = 0
    turns: list[Turn] = field(default_factory=list)
    running: list[Turn] = field(default_factory=list)
    keys: dict[str, bytes] = field(default_factory=dict)
    is_deleted: bool = False

    @property
    def head(self) -> Turn | None:
        """The newest turn."""
        return self.turns[-1] if self.turns else None

    def attempt(self, name: str, body: bytes, sent: list[Message], mark: str) -> Verdict:
        """What a request is.

        Args:
            name: Of the turn that it may begin.
            body: All that it sends.
            sent: Its messages.
            mark: `first`, `again` (counted as a retry), or an idempotency key.
        """
        if self.is_deleted:
            return _refused("session_gone")
        key = mark if mark not in ("first", "again") else ""
        is_retry = mark == "again" or key in self.keys
        if key and self.keys.setdefault(key, body) != body:
            return _refused("idempotency_key_reused")
        like = self.like(body, key, is_retry=is_retry)
        if like is not None:
            return Verdict(is_="joins" if like in self.running else "again", turn=like)
        return self._begun(name, body, key, sent)

    def like(self, body: bytes, key: str, *, is_retry: bool) -> Turn | None:
        """The turn that a request is a repeat of: in flight, or kept as the end of a branch."""
        bases = [turn.base for turn in self.turns]
        kept = [turn for turn in self.turns if turn not in bases][-_REPLIES_KEPT:]
        known = kept if is_retry else []
        known = known + (self.running if is_retry or not self.is_tree else [])
        same = [turn for turn in known if turn.body == body]
        own = [turn for turn in same if key and turn.key == key]
        return [None, *same, *own][-1]

    def _begun(self, name: str, body: bytes, key: str, sent: list[Message]) -> Verdict:
        base, refusal = self.attach(sent)
        prompt = self.prompt_of(base, sent)
        if refusal := refusal or self._limit(base, prompt):
            return _refused(refusal)
        turn = Turn(name, body, key, sent, base, self.head, prompt)
        self.running.append(turn)
        return Verdict(is_="begins", turn=turn)

    def attach(self, sent: Sequence[Message]) -> tuple[Turn | None, str]:
        """The turn that a conversation goes on from, and why it may not."""
        fits = [turn for turn in self.turns if _begins(sent, turn.conversation)]
        if self._has_grown:
            return None, "turn_limit_reached"
        if self.is_tree:
            deepest = max((len(turn.sent) for turn in fits), default=0)
            twins = [turn for turn in fits if len(turn.sent) == deepest]
            whole = [turn for turn in twins if not turn.is_cut]
            base = [None, *(whole or twins)][-1]
            return base, "turn_truncated" if base is not None and base.is_cut else ""
        is_too_deep = len(self.turns) - len(fits) > 1
        return [None, *fits][-1], "history_mismatch" if is_too_deep else ""

    def prompt_of(self, base: Turn | None, sent: Sequence[Message]) -> list[int]:
        """The base's tokens as they are, then what the new messages add."""
        new = sent if base is None else sent[len(base.conversation) :]
        text = "".join(map(_text_of, new)) + "<|im_start|>assistant\n"
        if base is None:
            return self.encode((_TOOLS_TEXT % json.dumps(TOOL) if self.has_tools else "") + text)
        ends = base.tokens[-1:] == self.encode(_END)
        return base.tokens + self.encode(("\n" if ends else "") + text)

    def sampled_of(self, said: Said) -> list[int]:
        """The tokens of a reply: letter by letter, as no tokenizer spells it."""
        letters = [token for letter in said.text for token in self.encode(letter)]
        return letters if said.finish in ("length", "abort") else letters + self.encode(_END)

    def drop(self, turn: Turn) -> None:
        """A turn failed, or its last client took it along."""
        self.running.remove(turn)

    def answer(self, turn: Turn, said: Said) -> None:
        """The engine answered; nothing is decided yet."""
        self.running.remove(turn)
        turn.said, turn.reply, turn.sampled = said, said.reply, self.sampled_of(said)

    def can_commit(self, turn: Turn) -> bool:
        """Whether an answered turn is recorded if it is the next one."""
        if self.is_deleted or self._has_grown or self._limit(turn.base, turn.prompt):
            return False
        return self.is_tree or turn.head is self.head

    def commit(self, turn: Turn) -> None:
        """It is recorded, in the place of what follows its base if the session is linear."""
        if not self.is_tree:
            del self.turns[self.turns.index(turn.base) + 1 if turn.base else 0 :]
        self.turns.append(turn)

    def may_fill_up(self, count: int) -> bool:
        """Whether so many turns at once would fill the tree before the last of them is planned."""
        return self.is_tree and 0 < MAX_TREE_TURNS - len(self.turns) < count

    @property
    def _has_grown(self) -> bool:
        return self.is_tree and len(self.turns) >= MAX_TREE_TURNS

    def _is_full(self, base: Turn | None) -> bool:
        replaces = not self.is_tree and base is not self.head
        return bool(self.max_turns) and len(self.turns) + (not replaces) > self.max_turns

    def _limit(self, base: Turn | None, prompt: list[int]) -> str:
        if self._is_full(base):
            return "turn_limit_reached"
        others = self.turns if self.is_tree else []
        held = sum(len(turn.tokens) - _length(turn.base) for turn in others)
        grown = held + len(prompt) - (_length(base) if self.is_tree else 0)
        return "token_limit_reached" if self.max_tokens and grown >= self.max_tokens else ""


def is_same(one: Message, other: Message) -> bool:
    """Whether two messages are the same to the strict matcher; nothing, null and `""` are equal."""
    return all((one.get(name) or None) == (other.get(name) or None) for name in _COMPARED)


def _begins(sent: Sequence[Message], conversation: Sequence[Message]) -> bool:
    return len(sent) >= len(conversation) and all(map(is_same, conversation, sent))


def _length(turn: Turn | None) -> int:
    return len(turn.tokens) if turn is not None else 0


def _refused(code: str) -> Verdict:
    status = {"session_gone": 410, "history_mismatch": 400}.get(code, 422)
    return Verdict(is_="refused", status=status, code=code)


def _text_of(message: Message) -> str:
    content = message["content"] or ""
    if message["role"] == "tool":
        return f"<|im_start|>user\n<tool_response>\n{content}\n</tool_response>{_END}\n"
    if message["role"] == "user":
        return f"<|im_start|>user\n{content}{_END}\n"
    thought = message.get("reasoning_content") or ""
    text = f"<|im_start|>assistant\n<think>\n{thought}\n</think>\n\n{content}"
    for call in message.get("tool_calls") or []:
        function = call["function"]
        arguments = json.dumps(json.loads(function["arguments"]))
        text += f'\n<tool_call>\n{{"name": "{function["name"]}", "arguments": {arguments}}}'
        text += "\n</tool_call>"
    return f"{text}{_END}\n"
