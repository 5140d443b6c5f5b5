"""The reply as a client gets it, and what it holds meanwhile."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from contextlib import ExitStack

import pytest
import safetensors.numpy
from starlette.responses import Response

from sessions.core.histories.node import Node
from sessions.core.records.record_stream import PIECE_BYTES, pin
from sessions.core.records.turnstile import Turnstile
from sessions.core.samples.assembly import TurnSample
from sessions.core.samples.default_hooks import DEFAULT_HOOKS
from sessions.core.samples.samples_reply import SampleWork, blobs_in, samples_reply_of
from sessions.core.samples.samples_request import SamplesRequest
from sessions.core.texts.json_text import JsonObject
from sessions.errors.group import ReplayStoreError
from sessions.errors.samples import SamplesMisalignedError
from sessions.tokens.prompts import PromptBuilder
from tests.support.desk import sent_by
from tests.support.parts import FakeBlob
from tests.support.samples import node_of, nodes_of, rows_for, turn_of

ROUTED = "routed_experts"


async def reply_of(
    prompts: PromptBuilder, turns: Sequence[TurnSample], pins: ExitStack, limit: int | None = None
) -> Response:
    wanted = SamplesRequest(max_seq_len=limit)
    work = SampleWork(prompts=prompts, hooks=DEFAULT_HOOKS, turnstile=Turnstile())
    nodes = nodes_of(turns)
    return await samples_reply_of(
        nodes, {"told": 1}, wanted, work=work, mismatch_of=None, pins=pins
    )


def session_of(
    prompts: PromptBuilder, *, is_at_hand: bool = True, fails_at: int | None = None
) -> tuple[list[TurnSample], FakeBlob]:
    """A turn of 2000 tokens with rows of 1000 bytes."""
    sampled = prompts.tokenizer.encode("Hé!<|im_end|>")
    prompt = [7] * (2000 - len(sampled))
    text = base64.b64encode(rows_for(1999, 25, 10).tobytes())
    stored = FakeBlob(text, is_at_hand=is_at_hand, fails_at=fails_at, error=ReplayStoreError)
    return [turn_of(prompt, sampled, replay=[(ROUTED, stored)], layers=25)], stored


@pytest.mark.parametrize("is_at_hand", [True, False])
async def test_a_session_is_sent_as_one_blob_of_a_known_length(
    prompts: PromptBuilder, *, is_at_hand: bool
):
    turns, stored = session_of(prompts, is_at_hand=is_at_hand)
    with pin(blobs_in(nodes_of(turns))) as pins:
        response = await reply_of(prompts, turns, pins)
    assert stored.pins == 1
    messages = await sent_by(response)
    assert stored.pins == 0
    bodies = [bytes(m["body"]) for m in messages[1:]]
    body = b"".join(bodies)
    assert messages[0]["status"] == 200
    assert messages[0]["headers"] == [
        (b"content-type", b"application/octet-stream"),
        (b"content-length", b"%d" % len(body)),
    ]
    assert len(body) > 1_999_000
    assert max(map(len, bodies)) <= PIECE_BYTES
    assert stored.most_bytes < 2 * PIECE_BYTES
    assert not stored.was_read_unpinned
    found = safetensors.numpy.load(body)
    assert (found["rollout_routed_experts.0"] == rows_for(1999, 25, 10)).all()
    document = json.loads(found["_samples_meta"].tobytes())
    assert document["samples"][0]["response"] == "Hé!<|im_end|>"
    assert document["session_metadata"] == {"told": 1}


async def test_the_limit_is_kept(prompts: PromptBuilder):
    turns, _ = session_of(prompts)
    with pin(blobs_in(nodes_of(turns))) as pins:
        response = await reply_of(prompts, turns, pins, 1999)
    body = b"".join(bytes(m["body"]) for m in (await sent_by(response))[1:])
    found = safetensors.numpy.load(body)
    assert found["tokens.0"].shape == (1999,)
    assert found["rollout_routed_experts.0"].shape == (1998, 25, 10)


async def test_the_family_says_what_joining_may_drop(prompts: PromptBuilder):
    turns = [turn_of([1], [10, 11]), turn_of([1, 10, 5], [12])]
    with pytest.raises(SamplesMisalignedError, match="turn 1"):
        await reply_of(prompts, turns, ExitStack())


async def test_a_store_that_fails_in_the_middle_cuts_the_reply_and_lets_go(prompts: PromptBuilder):
    turns, stored = session_of(prompts, fails_at=1_000_000)
    with pin(blobs_in(nodes_of(turns))) as pins:
        response = await reply_of(prompts, turns, pins)
    with pytest.raises(ReplayStoreError):
        await sent_by(response)
    assert stored.pins == 0


async def test_a_store_that_fails_at_once_is_an_error_with_a_status(prompts: PromptBuilder):
    turns, stored = session_of(prompts, fails_at=1)
    with pytest.raises(ReplayStoreError), pin(blobs_in(nodes_of(turns))) as pins:
        await reply_of(prompts, turns, pins)
    assert stored.pins == 0


async def test_nothing_stays_pinned_when_a_session_is_refused(prompts: PromptBuilder):
    turns, stored = session_of(prompts)
    turns.append(turn_of([1, 2], [3]))
    with pytest.raises(SamplesMisalignedError), pin(blobs_in(nodes_of(turns))) as pins:
        await reply_of(prompts, turns, pins)
    assert stored.pins == 0


async def test_the_loop_turns_between_the_comparisons_of_many_leaves(prompts: PromptBuilder):
    turn_of_loop, seen = 0, []

    async def mismatch_of(_: Node) -> JsonObject:
        seen.append(turn_of_loop)
        return {}

    async def count() -> None:
        nonlocal turn_of_loop
        while True:
            turn_of_loop += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    work = SampleWork(prompts=prompts, hooks=DEFAULT_HOOKS, turnstile=Turnstile())
    leaves = [node_of(turn_of([number], [7]), number, None) for number in range(10)]
    try:
        await samples_reply_of(
            leaves, {}, SamplesRequest(), work=work, mismatch_of=mismatch_of, pins=ExitStack()
        )
    finally:
        counting.cancel()
        work.close()
    assert len(set(seen)) == len(leaves)
