"""Replay fields in the engine's replies: found, and never shown to a client.

`routed_experts` and `indexer_topk` stand in `choices[*].meta_info`, in a response-level `sglext`,
in the `meta_info` of native replies, and who knows where next: they are taken out wherever an
object has such a key. Lists of numbers, where they cannot be, are not searched.

Must not know what the fields hold.

Spec: docs/replay.md#never-to-the-client
"""

from __future__ import annotations

import re
from typing import Final

from sessions.core.texts.json_text import Json, parse_engine_json, render_ascii_json, render_json
from sessions.replay.scanner import REPLAY_FIELDS

# Stands for a value that is neither text nor null; no base64, so it is found when it is checked.
NOT_TEXT: Final = "(not text)"
_NEEDLES: Final = tuple(f'"{field}"'.encode() for field in REPLAY_FIELDS)
# Long, and of tokens only.
_SKIPPED: Final = frozenset({"logprobs", "output_token_logprobs", "prompt_token_ids"})
_VALUE: Final = re.compile(rb'("(?:%s)"\s*:\s*")[^"]*' % "|".join(REPLAY_FIELDS).encode())
_EVENT_DATA: Final = b"data:"


def has_replay(body: bytes) -> bool:
    """Whether a JSON text may hold a replay field."""
    return any(needle in body for needle in _NEEDLES)


def take_replay(value: Json) -> list[str]:
    """Take the replay fields out of a parsed reply, in place.

    Args:
        value: Parsed JSON.

    Returns:
        The texts that were taken, in the order found, one that stood twice once.
    """
    return list(dict.fromkeys(text for _, text in take_replay_fields(value)))


def take_replay_fields(value: Json) -> list[tuple[str, str]]:
    """Take the replay fields out of a parsed reply, in place.

    Args:
        value: Parsed JSON.

    Returns:
        (field, text) for each that was not null, in the order found; the text of what was no
        string is `NOT_TEXT`.
    """
    taken: list[tuple[str, str]] = []
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list):
            # A list that starts with a number is one of numbers.
            waiting += reversed(found) if found and not isinstance(found[0], int | float) else []
            continue
        if not isinstance(found, dict):
            continue
        for field in REPLAY_FIELDS:
            blob = found.pop(field, None)
            if blob is not None:
                taken.append((field, blob if isinstance(blob, str) else NOT_TEXT))
        waiting += [
            child
            for key, child in reversed(found.items())
            if key not in _SKIPPED and isinstance(child, dict | list)
        ]
    return taken


def without_replay(body: bytes) -> bytes | None:
    """Take the replay fields out of a reply that is passed through.

    Args:
        body: JSON, or server-sent events with JSON data.

    Returns:
        The body without them, None when there was nothing to take out (pass the body as it is). A
        text that mentions them and is neither is blanked where they are.
    """
    if not has_replay(body):
        return None
    try:
        value, _ = parse_engine_json(body)
    except ValueError:
        return b"\n".join(_line_without_replay(line) for line in body.split(b"\n"))
    take_replay(value)
    return render_json(value)


def blank_replay(text: bytes) -> bytes:
    """Empty the values of replay fields in a text that is no valid JSON (for error messages)."""
    return _VALUE.sub(rb"\1", text)


def _line_without_replay(line: bytes) -> bytes:
    if not has_replay(line):
        return line
    if line.startswith(_EVENT_DATA):
        try:
            value, _ = parse_engine_json(line[len(_EVENT_DATA) :].strip())
        except ValueError:
            return blank_replay(line)
        take_replay(value)
        return _EVENT_DATA + b" " + render_ascii_json(value).encode()
    return blank_replay(line)
