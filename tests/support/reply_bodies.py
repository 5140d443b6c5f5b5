"""Bodies of engine replies with replay blobs, and ways to spoil them.

Each body comes from a seed. Half of what is done to it keeps it JSON (white space, members that
move or come twice, names and blobs within strings, escapes), half does not (bytes that flip, go or
come, a cut).

Spec: docs/replay.md#intake
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final

from sessions.core.texts.json_text import Json

FIELDS: Final = ("routed_experts", "indexer_topk")
# The rows of a long session: its turns' blobs begin alike.
_ROWS: Final = bytes(Random(7).randrange(256) for _ in range(1200))
_BYTES: Final = b'"\\{}[]:,=A+/- \n\t0n\x00\xff'


def body_of(rng: Random) -> bytes:
    """A reply as an engine may send it, then spoilt up to three times."""
    reply = rng.choice(_SHAPES)(rng)
    separators = rng.choice([(",", ":"), (", ", ": "), (",", " :\n"), (" ,", ":")])
    text = json.dumps(reply, separators=separators, ensure_ascii=rng.random() < 0.5)
    body = text.encode("utf-8", "surrogatepass")
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        body = rng.choice(_SPOILERS)(rng, body)
    return body


def pieces_of(rng: Random, body: bytes) -> list[memoryview]:
    """The body in pieces of random sizes, some of one byte."""
    view, at = memoryview(body), 0
    pieces: list[memoryview] = []
    limit = rng.choice((3, 40, 300, 2000, len(body) + 1))
    while at < len(body):
        size = rng.randint(1, limit) if len(pieces) < 25 else len(body)
        pieces.append(view[at : at + size])
        at += size
    return pieces


def _blob(rng: Random) -> str:
    if rng.random() < 0.1:
        return ""
    data = _ROWS[: rng.choice((30, 190, 191, 192, 193, 300, 301, 302, 600, 1200))]
    if rng.random() < 0.3:  # an .npy file
        data = (
            b"\x93NUMPY\x01\x00\x76\x00" + b"{'shape': (%d, 1, 1)}" % len(data) + b" " * 60 + data
        )
    return base64.b64encode(data).decode()


def _sglang(rng: Random) -> Json:
    choices: list[Json] = []
    for index in range(rng.choice((1, 1, 1, 2, 3))):
        meta: Json = {"id": "x", "output_token_logprobs": [[-0.5, 7, None]], "completion_tokens": 1}
        for field in rng.sample(FIELDS, rng.randint(1, 2)):
            meta[field] = rng.choice((_blob(rng), _blob(rng), None))
        message = {"role": "assistant", "content": rng.choice(("é\u2028", 'say "hi"\\', ""))}
        choices.append({"index": index, "message": message, "meta_info": meta})
    reply: Json = {"id": "r", "choices": choices, "usage": {"completion_tokens": 1}}
    if rng.random() < 0.5:
        copied = choices[0]["meta_info"]
        reply["sglext"] = {f: copied.get(f, "") for f in FIELDS if rng.random() < 0.7}
    if rng.random() < 0.2:
        reply["x"] = rng.choice((float("nan"), float("-inf"), "\ud800", 1.5e300))
    return reply


def _vllm(rng: Random) -> Json:
    choice = {"message": {"content": "x"}, "token_ids": [1, 2], "routed_experts": _blob(rng)}
    return {"choices": [choice], "prompt_token_ids": [1, 2, 3], "kv_transfer_params": None}


def _deep(rng: Random) -> Json:
    value: Json = {rng.choice(FIELDS): _blob(rng), "logprobs": {FIELDS[0]: _blob(rng)}}
    for _ in range(rng.randint(0, 5)):
        value = rng.choice(([value], [0, value], {"a": value, rng.choice(FIELDS): _blob(rng)}))
    return value


def _quoting(rng: Random) -> Json:
    """A model's text that imitates a reply."""
    inner = json.dumps({rng.choice(FIELDS): _blob(rng)})
    return {"content": rng.choice((inner, json.dumps(inner), "," + inner)), "z": _vllm(rng)}


_SHAPES: Final[Sequence[Callable[[Random], Json]]] = (_sglang, _sglang, _vllm, _deep, _quoting)


def _place(rng: Random, body: bytes) -> int:
    """Anywhere, or at a byte of JSON's own, or within a blob."""
    at = rng.randrange(len(body) + 1)
    found = body.find(rng.choice((b'"', b",", b":", b"{", b"}", b"QI", b"=", b"_")), at)
    return found + rng.randint(0, 1) if found >= 0 and rng.random() < 0.7 else at


def _flip(rng: Random, body: bytes) -> bytes:
    at = _place(rng, body)
    return body[:at] + bytes([rng.choice(_BYTES)]) + body[at + 1 :]


def _insert(rng: Random, body: bytes, what: Sequence[bytes]) -> bytes:
    at = _place(rng, body)
    return body[:at] + rng.choice(what) + body[at:]


def _delete(rng: Random, body: bytes) -> bytes:
    at = _place(rng, body)
    return body[:at] + body[at + rng.choice((1, 1, 2, 10, 300)) :]


def _repeat(rng: Random, body: bytes) -> bytes:
    start, stop = sorted((_place(rng, body), _place(rng, body)))
    return body[:stop] + body[start:stop] + body[stop:]


def _cut(rng: Random, body: bytes) -> bytes:
    return body[: _place(rng, body)]


def _swap_names(rng: Random, body: bytes) -> bytes:
    one, other = (name.encode() for name in rng.sample((*FIELDS, "x"), 2))
    return body.replace(one, other, rng.randint(1, 3))


def _repeat_member(rng: Random, body: bytes) -> bytes:
    """The same name twice in an object: the last counts."""
    member = f'"{rng.choice(FIELDS)}":{rng.choice(("null", "1", json.dumps(_blob(rng))))}'
    if rng.random() < 0.5:
        return body.replace(b"{", b"{" + member.encode() + b",", rng.randint(1, 3))
    return body.replace(b"}", b"," + member.encode() + b"}", rng.randint(1, 3))


def _escape(rng: Random, body: bytes) -> bytes:
    """Write one letter of a name or a blob as an escape."""
    letter = rng.choice("_xKAQI/")
    at = body.find(letter.encode(), rng.randrange(len(body) + 1))
    written = rng.choice((f"\\u{ord(letter):04x}", f"\\{letter}", '\\"', "\\\\")).encode()
    return body[:at] + written + body[at + 1 :] if at >= 0 else body


def _wrap(rng: Random, body: bytes) -> bytes:
    before, after = rng.choice(((b"[1,", b"]"), (b"[", b",{}]"), (b'{"a": ', b"}"), (b" ", b"\n")))
    return before + body + after


def _whole_as_string(_rng: Random, body: bytes) -> bytes:
    text = json.dumps(body.decode(errors="replace"))
    return f'{{"content":{text},"routed_experts":"{"QUJD" * 70}"}}'.encode()


_SPOILERS: Final[Sequence[Callable[[Random, bytes], bytes]]] = (
    _flip,
    partial(_insert, what=[bytes([byte]) for byte in _BYTES]),
    partial(_insert, what=[b" ", b"\n\t", b" " * 300]),
    partial(
        _insert, what=[b'"routed_experts":"' + b"QUJD" * 70 + b'"', b',"indexer_topk": "AAAA"']
    ),
    _delete,
    _repeat,
    _cut,
    _swap_names,
    _repeat_member,
    _escape,
    _wrap,
    _whole_as_string,
)
