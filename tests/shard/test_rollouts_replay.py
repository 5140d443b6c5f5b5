"""Replay data and numbers that are not as they should be, through the whole application.

Cases C-T29, C-T36 and D26 of docs/cases.md: the chat gets its 200 and nothing of the replay, the
record is JSON and keeps what the engine sent, what is wrong is named there and by the samples.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx
import numpy as np
import pytest

from sessions.client.answers import Answer as ClientAnswer
from sessions.client.samples import Sample, parse_samples
from sessions.tokens.prompts import PromptBuilder
from tests.support.raw_engine import Answer, Asked, raw_engine
from tests.support.raw_replies import chunked_reply, length_reply
from tests.support.rollouts import CHAT, Rollouts, ask, create, error_of, open_parts, user
from tests.support.samples import npy_of, rows_for
from tests.support.turn_replies import Sampler

LAYERS, TOPK = 4, 8
Meta = dict[str, Any]
Spoil = Callable[[Meta, int], None]


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def bare(rows: int, layers: int = LAYERS) -> str:
    return text_of(rows_for(rows, layers, TOPK).tobytes())


def put(value_of: Callable[[int], object]) -> Spoil:
    """Put something in the place of the rows; it is told how many are due."""

    def spoil(meta: Meta, due: int) -> None:
        meta["routed_experts"] = value_of(due)

    return spoil


def put_text(before: str, after: str) -> Spoil:
    """Change the base64 text in the middle."""

    def spoil(meta: Meta, _: int) -> None:
        text = meta["routed_experts"]
        meta["routed_experts"] = text[:400] + text[400:].replace(before, after, 1)

    return spoil


def npy(number_type: str, rows: int = 0, **changes: bool) -> Spoil:
    """An `.npy` file, as vLLM sends it; with other rows than are due."""

    def spoil(meta: Meta, due: int) -> None:
        found = rows_for(due + rows, LAYERS, TOPK) % 128
        array = np.asarray(found, dtype=number_type, order="F" if changes else "C")
        meta["routed_experts"] = text_of(npy_of(array))

    return spoil


@dataclass(frozen=True, slots=True)
class Case:
    """What an engine does with the rows, and what must be told of it; "" if nothing is wrong."""

    spoil: Spoil
    told: str = ""
    layers: int = LAYERS


CASES: Final = {
    "as it should be": Case(lambda _meta, _due: None),
    "uint8 in a file": Case(npy("u1")),
    "uint16 in a file": Case(npy("<u2")),
    "int32 in a file": Case(npy("<i4")),
    "an unknown number of layers": Case(lambda _meta, _due: None, layers=0),
    "escaped slashes": Case(put(bare)),
    "one row too few": Case(put(lambda due: bare(due - 1)), "rows of int32"),
    "one row too many": Case(put(lambda due: bare(due + 1)), "rows of int32"),
    "one row too few in a file": Case(npy("<i4", -1), "x4x8 is not"),
    "one row too many in a file": Case(npy("u1", 1), "x4x8 is not"),
    "half a row": Case(put(lambda due: text_of(bytes(due * 128 - 64))), "rows of int32"),
    "no row": Case(put(lambda _: ""), "0 bytes are not"),
    "other layers than the settings say": Case(
        lambda _meta, _due: None, "a row has 32 numbers, which are not 5 layers", layers=5
    ),
    "an order that is not ours": Case(npy("<i4", order=True), "its .npy header cannot be read"),
    "floats": Case(npy("<f4"), "numbers of type <f4 are not known"),
    "a file that is cut": Case(
        put(lambda due: text_of(npy_of(rows_for(due, LAYERS, TOPK))[:-32])), "bytes are no"
    ),
    "a character that is none": Case(put_text("A", "!"), "it is no base64 text"),
    "a quote in the text": Case(put_text("A", '"'), "it is no base64 text"),
    "a lone surrogate in the text": Case(put_text("A", "\ud800"), "it is no base64 text"),
    "padding in the middle": Case(put_text("AAAA", "AA=="), "it is no base64 text"),
    "a character too few": Case(put_text("A", ""), "it is no base64 text"),
    "a list": Case(put(lambda due: rows_for(due, 1, 1).tolist()), "it is no base64 text"),
    "an object": Case(put(lambda _: {"data": "AAAA"}), "it is no base64 text"),
}
# What else a reply may hold, whatever its rows are.
EXTRAS: Final[dict[str, Callable[[str], str]]] = {
    "nothing": lambda text: text,
    "NaN": lambda text: text.replace("[-0.5, ", "[NaN, ", 1).replace("1700000000", "Infinity"),
    "-Infinity": lambda text: text.replace("[-0.5, ", "[-Infinity, ", 1),
    "out of range": lambda text: text.replace("[-0.5, ", "[-1e999, ", 1),
    "lone surrogate": lambda text: text.replace('"ok"', '"a\\ud83db"', 1),
    "both": lambda text: text.replace('"ok"', '"\\udc00"').replace("[-0.5, ", "[NaN, ", 1),
}


class Bench:
    """One session and an engine whose reply a test chooses."""

    def __init__(self, rollouts: Rollouts, prompts: PromptBuilder) -> None:
        self._asgi = rollouts.asgi
        self._sampler = Sampler(prompts, layers=LAYERS, topk=TOPK)
        self.rollouts = rollouts
        self.path = ""
        self.sent = b""
        self.spoil: Spoil = CASES["as it should be"].spoil
        self.extra: Callable[[str], str] = EXTRAS["nothing"]

    def answer_of(self, asked: Asked) -> Answer:
        document = self._sampler.document(asked)
        self.spoil(document["choices"][0]["meta_info"], self._sampler.rows_due(asked))
        self.sent = self.extra(json.dumps(document)).encode()
        is_chunked = len(self.sent) % 2 and len(self.sent) < 1 << 16
        return Answer((chunked_reply if is_chunked else length_reply)(self.sent))

    async def open(self) -> None:
        self.path = f"/sessions/{(await create(self.rollouts.client))['session_id']}"

    async def chat(self, *, stream: bool = False) -> httpx.Response:
        body = json.dumps({"messages": [user("hi")], "stream": stream}).encode()
        response = await ask(self._asgi, "POST", self.path + CHAT, body)
        assert response.status_code == 200, response.text
        assert "x-turn-recorded" not in response.headers
        for secret in (bare(3)[8:48], "routed_experts", "indexer_topk", "NUMPY"):
            assert secret not in response.text
        return response

    async def record(self, query: str = "") -> dict[str, Any]:
        response = await ask(self._asgi, "GET", self.path + query)
        assert response.status_code == 200
        (found,) = json.loads(response.content)["records"]
        return dict(found)

    async def raw_reply(self) -> bytes:
        """The engine's own bytes as the record keeps them."""
        text = (await ask(self._asgi, "GET", f"{self.path}?fields=response&raw=1")).content
        start = text.index(b'"response":') + len(b'"response":')
        return text[start : start + len(self.sent)]

    async def samples(self) -> httpx.Response:
        return await ask(self._asgi, "POST", f"{self.path}/samples")

    async def sample(self) -> Sample:
        response = await self.samples()
        answer = ClientAnswer(status=response.status_code, headers={}, body=response.content)
        (sample,) = parse_samples(answer).samples
        return sample


@asynccontextmanager
async def bench_of(prompts: PromptBuilder, layers: int = LAYERS) -> AsyncIterator[Bench]:
    benches: list[Bench] = []

    def answer_of(asked: Asked) -> Answer:
        return benches[0].answer_of(asked)

    async with (
        raw_engine(answer_of) as engine,
        open_parts(
            prompts,
            f"http://127.0.0.1:{engine.port}",
            routing_replay="1",
            replay_layers=str(layers),
        ) as rollouts,
    ):
        benches.append(Bench(rollouts, prompts))
        await benches[0].open()
        yield benches[0]
        await rollouts.client.delete(benches[0].path)
        assert rollouts.kept_bytes == (0, 0)


@pytest.mark.parametrize("name", CASES)
async def test_rows_are_kept_as_sent_and_what_is_wrong_is_named(name: str, prompts: PromptBuilder):
    case = CASES[name]
    async with bench_of(prompts, case.layers) as bench:
        for extra in EXTRAS.values():
            bench.spoil, bench.extra = case.spoil, extra
            if name == "escaped slashes":
                bench.extra = lambda text, extra=extra: extra(text).replace("/", "\\/")  # type: ignore[misc]
            await bench.chat(stream=len(bench.sent) % 2 == 0)
            record = await bench.record()
            assert case.told in record.get("replay_error", "")
            assert bool(case.told) == ("replay_error" in record)
            assert await bench.raw_reply() == bench.sent
            if case.told:
                error = error_of(await bench.samples(), 422)
                assert error["code"] == "replay_mismatch"
                assert "turn 1" in error["message"]
                assert case.told in error["message"]
            else:
                await has_exact_rows(bench, record)
        # The turn sampled again is fine.
        bench.spoil, bench.extra = CASES["as it should be"].spoil, EXTRAS["nothing"]
        if case.layers in (0, LAYERS):
            await bench.chat()
            await has_exact_rows(bench, await bench.record())


async def has_exact_rows(bench: Bench, record: dict[str, Any]) -> None:
    """The samples of a session have the rows that its record has, and its numbers."""
    sample = await bench.sample()
    rows = sample.rollout_routed_experts
    assert rows is not None
    data = base64.b64decode(record["response"]["choices"][0]["meta_info"]["routed_experts"])
    if data.startswith(b"\x93NUMPY"):
        assert rows.tolist() == (rows_for(len(rows), LAYERS, TOPK) % 128).tolist()
    else:
        assert rows.tobytes() == data
    assert len(rows) == len(sample.tokens) - 1
    is_odd = b"NaN" in bench.sent or b"[-Infinity" in bench.sent or b"1e999" in bench.sent
    assert np.isnan(sample.rollout_log_probs[0]) == is_odd
    told = record["response"]["choices"][0]["meta_info"]["output_token_logprobs"]
    assert (told[0][0] is None) == is_odd


async def test_rows_of_64_mib_are_kept_bit_for_bit(prompts: PromptBuilder):
    async with bench_of(prompts, layers=0) as bench:
        texts: list[str] = []

        def spoil(meta: Meta, due: int) -> None:
            row = np.arange((64 << 20) // 4 // due, dtype="<i4")
            texts.append(text_of(np.tile(row, due).tobytes()))
            meta["routed_experts"] = texts[-1]

        bench.spoil = spoil
        response = await bench.chat()
        assert len(response.content) < 4096
        assert len(bench.sent) > 64 << 20
        assert await bench.raw_reply() == bench.sent
        rows = (await bench.sample()).rollout_routed_experts
        assert rows is not None
        assert rows.tobytes() == base64.b64decode(texts[-1])
