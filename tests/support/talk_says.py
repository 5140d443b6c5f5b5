"""What the engine does with a turn in the model of conversations: what it samples, how it fails.

Spec: docs/sessions.md#model
"""

from __future__ import annotations

import json
from typing import Any, Final

from tests.support.talk_model import Message, Said, Turn

_UNUSABLE: Final = (502, "engine_reply_unusable")
FAULTS: Final[dict[str, tuple[dict[str, Any], tuple[int, str]]]] = {
    "status 400": ({"kind": "status", "status": 400}, (400, "engine")),
    "status 429": ({"kind": "status", "status": 429}, (429, "engine")),
    "status 500": ({"kind": "status", "status": 500}, (500, "engine")),
    "no choices": ({"kind": "no_choices"}, _UNUSABLE),
    "no ids": ({"kind": "no_meta_info"}, _UNUSABLE),
    "no logprobs": ({"kind": "no_logprobs"}, _UNUSABLE),
    "wrong count": ({"kind": "token_count"}, _UNUSABLE),
    "other prompt": ({"kind": "prompt_ids"}, _UNUSABLE),
    "broken": ({"kind": "broken_json"}, _UNUSABLE),
    "cut": ({"kind": "cut", "after_bytes": 9}, (502, "engine_unreachable")),
    "reset": ({"kind": "reset", "after_bytes": 9}, (502, "engine_unreachable")),
}
SAYS: Final = ("talks", "thinks", "calls", "is cut off", "aborts", "says null")


def said_of(does: str, number: int, *, has_tools: bool) -> Said:
    """What the engine samples; the number makes it unlike any other."""
    reply: Message = {"role": "assistant", "content": f"reply {number}"}
    text, finish = reply["content"], "stop"
    if does == "thinks":
        reply["reasoning_content"] = f"hm {number}"
        text = f"<think>\nhm {number}\n</think>\n\n{text}"
    elif does == "calls" and has_tools:
        function = {"name": "look", "arguments": json.dumps({"n": number})}
        reply["tool_calls"] = [{"id": "", "type": "function", "function": function}]
        called = f'{{"name": "look", "arguments": {function["arguments"]}}}'
        text = f"{text}\n<tool_call>\n{called}\n</tool_call>"
        finish = "tool_calls"
    elif does == "says null":
        reply["content"] = None
    else:
        finish = {"is cut off": "length", "aborts": "abort"}.get(does, finish)
    return Said(text=text, reply=reply, finish=finish)


def script_of(turn: Turn, does: str) -> dict[str, Any]:
    """What the simulated engine is told for a turn whose answer is decided."""
    script: dict[str, Any] = {"token_ids": turn.sampled}
    if does == "says null":
        script["fault"] = {"kind": "null_content"}
    if turn.said is not None and turn.said.finish in ("length", "abort"):
        script["finish_reason"] = turn.said.finish
    return script
