"""What vLLM's parsers `qwen3` (reasoning) and `hermes` (tools) make of a reply's text.

As 0.30 was seen to do it. With thinking allowed a reply is reasoning from its first character on,
whatever its prompt ends with, until `</think>`, a tool call, or its end. Line breaks stay. Text
after the first call is dropped, unless no call can be read: then all of it stays content. A call
need not be closed.

Must not know token ids.

Spec: docs/sim.md#vllm
"""

from __future__ import annotations

import json
import re
from typing import Final

from sessions.sim.chatml import THINK, THINK_END, Call, Utterance

_CALL: Final = "<tool_call>"
_CALL_END: Final = "</tool_call>"
_CALLS: Final = re.compile(f"{_CALL}(.*?){_CALL_END}|{_CALL}(.*)", re.DOTALL)
_REASONING_END: Final = re.compile(f"{THINK_END}|(?={_CALL})")


def parse_vllm_reply(text: str, *, calls: bool, thinking: bool) -> Utterance:
    """Parse a reply.

    Args:
        text: Decoded reply without its stop token.
        calls: Whether tool calls are looked for.
        thinking: Whether the request leaves thinking on.

    Returns:
        The parts; the content is "" where vLLM says null.
    """
    reasoning, rest = _reasoning_in(text) if thinking else (None, text)
    if not calls or _CALL not in rest:
        return Utterance(reasoning=reasoning, content=rest)
    try:
        found = [_call_in(closed or open_) for closed, open_ in _CALLS.findall(rest)]
    except (ValueError, KeyError, TypeError):
        return Utterance(reasoning=reasoning, content=rest)
    content = rest[: rest.index(_CALL)]
    return Utterance(reasoning=reasoning, content=content if content.strip() else "", calls=found)


def _reasoning_in(text: str) -> tuple[str | None, str]:
    """Reasoning, None if there is none, and what follows it."""
    end = _REASONING_END.search(text)
    thought, rest = (text, "") if end is None else (text[: end.start()], text[end.end() :])
    if end is not None and not end[0]:
        rest = rest.replace(THINK_END, "", 1)  # a call ended it; the tag after it is no text
    return thought.replace(THINK, "", 1) or None, rest


def _call_in(inside: str) -> Call:
    """One call.

    Raises:
        ValueError: No JSON.
        KeyError: No name or no arguments.
        TypeError: No object.
    """
    found = json.loads(inside)
    return Call(
        name=str(found["name"]), arguments=json.dumps(found["arguments"], ensure_ascii=False)
    )
