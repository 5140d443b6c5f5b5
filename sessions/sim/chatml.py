"""ChatML as the Qwen3 template writes it: a prompt's text, a reply's text, and a reply parsed.

`reply_text` writes what a model samples after the generation prompt; `parse_reply` is what an
engine's reasoning and tool parsers make of such a text. A message that is parsed and rendered again
gives the same text, except for arguments that were not spelt as JSON libraries spell them.

Must not know token ids.

Spec: docs/sim.md#replies
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

TURN_START: Final = "<|im_start|>"
TURN_END: Final = "<|im_end|>"
THINK: Final = "<think>"
THINK_END: Final = "</think>"
_CALL: Final = "<tool_call>"
_CALL_END: Final = "</tool_call>"
_CALLS: Final = re.compile(re.escape(_CALL) + r"(.*?)" + re.escape(_CALL_END), re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call; the arguments are text, JSON when they come from a parsed reply."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """A reply in its parts.

    Attributes:
        reasoning: Text of the think block, "" when it is empty, None when there is none.
        content: Text outside of think block and calls.
        calls: Tool calls in order.
    """

    reasoning: str | None
    content: str
    calls: Sequence[Call] = ()


def text_of(content: object) -> str:
    """The text of a message's `content`: a string, null, or a list of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part.get("text") for part in content if isinstance(part, dict))
    return "".join(part for part in parts if isinstance(part, str))


def arguments_text(arguments: object) -> str:
    """Arguments as the template writes them: a string as it stands, else JSON."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False)


def prompt_text(messages: Sequence[Mapping[str, Any]], *, thinking: bool) -> str:
    """A plain ChatML prompt.

    Args:
        messages: Chat messages; tool declarations are not rendered.
        thinking: False appends the empty think block, as the Qwen3 template does.

    Returns:
        All messages and the generation prompt.
    """
    turns = [
        f"{TURN_START}{message.get('role')}\n{_message_text(message)}{TURN_END}\n"
        for message in messages
    ]
    tail = "" if thinking else f"{THINK}\n\n{THINK_END}\n\n"
    return "".join(turns) + f"{TURN_START}assistant\n{tail}"


def _message_text(message: Mapping[str, Any]) -> str:
    content = text_of(message.get("content"))
    if message.get("role") != "assistant":
        return content
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    calls = message.get("tool_calls")
    functions = [
        call["function"]
        for call in (calls if isinstance(calls, list) else [])
        if isinstance(call, dict) and isinstance(call.get("function"), dict)
    ]
    return reply_text(
        Utterance(
            reasoning=reasoning if isinstance(reasoning, str) else None,
            content=content,
            calls=[
                Call(
                    name=str(each.get("name")), arguments=arguments_text(each.get("arguments", {}))
                )
                for each in functions
            ],
        )
    )


def reply_text(utterance: Utterance) -> str:
    """What stands between the generation prompt and the stop token."""
    blocks = [utterance.content] if utterance.content else []
    blocks += [
        f'{_CALL}\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n{_CALL_END}'
        for call in utterance.calls
    ]
    said = "\n".join(blocks)
    if utterance.reasoning is None:
        return said
    thought = utterance.reasoning.strip("\n")
    return f"{THINK}\n{thought}\n{THINK_END}\n\n" + said.lstrip("\n")


def parse_reply(text: str, *, calls: bool) -> Utterance:
    """What the reasoning and tool parsers find.

    Args:
        text: Decoded reply without its stop token.
        calls: Whether tool calls are looked for.

    Returns:
        The parts. A think block that never ends is all reasoning; a call that is cut or is no
        JSON is dropped, and with it what follows the first call.
    """
    reasoning, rest = None, text
    if text.lstrip().startswith(THINK):
        inside, _, rest = text.lstrip()[len(THINK) :].partition(THINK_END)
        reasoning = inside.strip()
        rest = rest.strip()
    if not calls or _CALL not in rest:
        return Utterance(reasoning=reasoning, content=rest)
    parsed = [_parse_call(inside) for inside in _CALLS.findall(rest)]
    return Utterance(
        reasoning=reasoning,
        content=rest[: rest.index(_CALL)].strip(),
        calls=[call for call in parsed if call is not None],
    )


def _parse_call(inside: str) -> Call | None:
    try:
        found = json.loads(inside)
        arguments = json.dumps(found["arguments"], ensure_ascii=False)
        return Call(name=str(found["name"]), arguments=arguments)
    except (ValueError, KeyError, TypeError):
        return None
