"""What the simulated model says when a request does not script it.

Given tools and a user's message it thinks, says a word and calls a tool (every third time two); a
tool's result it answers; anything else it chats about. The choice of tool follows the number of
user messages, so a demo of some turns uses all of them; words and arguments are random.

Must not know token ids.

Spec: docs/sim.md#improvisation
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from sessions.sim.arguments import arguments_for
from sessions.sim.body import ChatBody
from sessions.sim.chatml import Call, Utterance, arguments_text, text_of
from sessions.sim.options import SimOptions, Thinking
from sessions.sim.script import Script

_PROSE: Final = (
    "the a this one another each some north open small clear quiet early later next first "
    "plan note step path field river harbour table letter number answer question result reason "
    "shows gives keeps needs follows holds joins moves reads finds means takes turns looks "
    "and but then so because while after before with without under over near beyond again "
    "well enough today together slowly often almost"
)
_WORDS: Final = tuple(_PROSE.split())
_OPENERS: Final = ("Let me look.", "I will check.", "One moment.", "Checking that now.")
_QUOTED_CHARS: Final = 120
_PAIR_EVERY: Final = 3  # user messages between replies with two calls


def utterance_of(
    body: ChatBody, options: SimOptions, rng: random.Random, *, thinking: bool
) -> Utterance:
    """Script and improvisation together.

    Args:
        body: The request.
        options: Of the engine.
        rng: Chooses words.
        thinking: Whether the prompt leaves room for a think block.

    Returns:
        What to say, scripted parts as scripted.
    """
    script = body.script
    calls = _calls(body, options, rng)
    content = script.content
    if content is msgspec.UNSET:
        content = _content(body, options, rng, calling=bool(calls))
    reasoning = script.reasoning
    if reasoning is msgspec.UNSET:
        reasoning = _reasoning(options, rng, calls) if thinking else None
    return Utterance(reasoning=reasoning, content=content, calls=calls)


def _calls(body: ChatBody, options: SimOptions, rng: random.Random) -> list[Call]:
    script: Script = body.script
    if script.tool_calls is not msgspec.UNSET:
        return [
            Call(name=each.name, arguments=arguments_text(each.arguments))
            for each in script.tool_calls
        ]
    if script.content is not msgspec.UNSET or not options.calls or not body.may_call:
        return []
    functions = [
        each["function"] for each in body.tools or [] if isinstance(each.get("function"), dict)
    ]
    chosen = _chosen(body, functions)
    hint = _last_text(body.messages, "user")
    return [
        Call(
            name=str(each.get("name")),
            arguments=arguments_text(arguments_for(each.get("parameters"), hint, rng)),
        )
        for each in chosen
    ]


def _chosen(body: ChatBody, functions: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    if not functions:
        return []
    choice = body.tool_choice
    if isinstance(choice, dict):
        named = choice.get("function")
        name = named.get("name") if isinstance(named, dict) else None
        return [each for each in functions if each.get("name") == name][:1]
    asked = sum(message.get("role") == "user" for message in body.messages)
    last_role = body.messages[-1].get("role") if body.messages else None
    if last_role != "user" and choice != "required":
        return []
    first = (asked - 1) % len(functions)
    if len(functions) > 1 and asked % _PAIR_EVERY == 0:
        return [functions[first], functions[(first + 1) % len(functions)]]
    return [functions[first]]


def _content(body: ChatBody, options: SimOptions, rng: random.Random, *, calling: bool) -> str:
    if calling:
        return rng.choice(_OPENERS)
    talk = _talk(options.words, rng)
    if body.messages and body.messages[-1].get("role") == "tool":
        return f"The tool says: {_quoted(_last_text(body.messages, 'tool'))}. {talk}"
    return talk


def _reasoning(options: SimOptions, rng: random.Random, calls: Sequence[Call]) -> str | None:
    if options.thinking is Thinking.NONE:
        return None
    if options.thinking is Thinking.EMPTY:
        return ""
    thought = _talk(max(4, options.words // 2), rng)
    if calls:
        return f"{thought} I should call {' and '.join(call.name for call in calls)}."
    return thought


def _talk(words: int, rng: random.Random) -> str:
    """Sentences with about so many words in all."""
    sentences = []
    while words > 0:
        count = min(words, rng.randint(5, 11))
        sentences.append(" ".join(rng.choices(_WORDS, k=count)).capitalize() + ".")
        words -= count
    return " ".join(sentences)


def _last_text(messages: Sequence[Mapping[str, Any]], role: str) -> str:
    for message in reversed(messages):
        if message.get("role") == role:
            return text_of(message.get("content"))
    return ""


def _quoted(text: str) -> str:
    """A text that cannot be mistaken for markup, on one line."""
    plain = "".join(char if char.isprintable() and char not in "<>|" else " " for char in text)
    return " ".join(plain[:_QUOTED_CHARS].split())
