"""The reply to a request for samples: assembled in a thread, then sent piece by piece.

All that can be refused is refused before the first byte: the thread gives the whole header and
every tensor but the rows of replay data, which are decoded while they are sent.

Hooks are foreign code and may wait for something. So the threads are few and of their own: those of
the loop are for work that turns wait for.

Must not know how sessions are found.

Spec: docs/samples.md#reply
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, TypeAlias, TypeVar

from starlette.responses import Response

from sessions.core.histories.node import Node
from sessions.core.histories.tree_view import leaf_of
from sessions.core.records.record_stream import RecordStream, pieces_of
from sessions.core.records.turnstile import Turnstile
from sessions.core.samples.assembly import EmptyReason, SampleRules
from sessions.core.samples.finished_samples import finished_samples_of
from sessions.core.samples.hooks import SampleHooks
from sessions.core.samples.layout import parts_of
from sessions.core.samples.picked_samples import PickedSample, picked_samples_of
from sessions.core.samples.samples_request import SamplesRequest
from sessions.core.samples.tensors import tensors_of
from sessions.core.texts.json_text import JsonObject
from sessions.replay.blobs import ReplayBlob
from sessions.replay.splice import Part, size_of
from sessions.tokens.prompts import PromptBuilder

MismatchOf: TypeAlias = Callable[[Node], Awaitable[JsonObject]]
_T = TypeVar("_T")
_BLOB_TYPE: Final = (b"content-type", b"application/octet-stream")
# A guess: they share one interpreter, so more help only hooks that wait.
_THREADS: Final = 4


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="sessile-samples")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleWork:
    """What all requests for samples share.

    Attributes:
        prompts: Of the tokenizer and family.
        hooks: Choose leaves and finish samples.
        turnstile: Of all long replies of the process.
        threads: Where samples are made; none is started before the first.
    """

    prompts: PromptBuilder
    hooks: SampleHooks
    turnstile: Turnstile
    threads: ThreadPoolExecutor = field(default_factory=_threads)

    async def do(self, work: Callable[[], _T]) -> _T:
        """Do work in one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work)

    def close(self) -> None:
        """Begin no more work; waits for nothing."""
        self.threads.shutdown(wait=False, cancel_futures=True)


def blobs_in(nodes: Iterable[Node]) -> list[ReplayBlob]:
    """The replay blobs that a reply may read."""
    rows = [rows for node in nodes for rows in node.checkpoint.facts.replay.values()]
    return [row.source for row in rows if row.source is not None]


async def samples_reply_of(
    nodes: Sequence[Node],
    metadata: JsonObject,
    wanted: SamplesRequest,
    *,
    work: SampleWork,
    mismatch_of: MismatchOf | None,
    pins: ExitStack,
) -> Response:
    """Make the reply; its first piece is there.

    Args:
        nodes: A session's recorded turns, oldest first.
        metadata: What the session says of itself.
        wanted: What the client wants.
        work: What all requests share.
        mismatch_of: What the metadata of the sample of a leaf say of its mismatch; None for a
            linear session, whose own metadata say that and what else is said of leaves.
        pins: Of the blobs that `blobs_in` names; the reply takes them over unless this raises.

    Raises:
        UnprocessableError: No sample can be made, or a hook failed; see `picked_samples_of` and
            `finished_samples_of`.
        ReplayStoreError: The disk failed.
    """
    prompts = work.prompts
    rules = SampleRules(
        max_trim_count=prompts.family.max_trim_count, max_seq_len=wanted.max_seq_len
    )
    picked = await work.do(
        lambda: picked_samples_of(
            nodes,
            rules=rules,
            decode=prompts.tokenizer.decode,
            picker=work.hooks.picker,
            metadata=wanted.metadata,
        )
    )
    leaves = [] if isinstance(picked, EmptyReason) else [each.node for each in picked]
    mismatches = None if mismatch_of is None else await _mismatches_of(leaves, mismatch_of)
    parts = await work.do(lambda: _parts_of(picked, mismatches, metadata, wanted, work))
    size_bytes = sum(map(size_of, parts))
    pieces = pieces_of(parts, 0, size_bytes)
    turnstile = work.turnstile
    reply = RecordStream(
        HTTPStatus.OK, [_BLOB_TYPE], pieces, size_bytes, pins=pins.pop_all(), turnstile=turnstile
    )
    await reply.begin()
    return reply


async def _mismatches_of(leaves: Iterable[Node], mismatch_of: MismatchOf) -> list[JsonObject]:
    found = []
    for leaf in leaves:
        found.append(await mismatch_of(leaf))
        # A short leaf is compared here, and there may be a thousand of them.
        await asyncio.sleep(0)
    return found


def _parts_of(
    picked: list[PickedSample] | EmptyReason,
    mismatches: list[JsonObject] | None,
    metadata: JsonObject,
    wanted: SamplesRequest,
    work: SampleWork,
) -> list[Part]:
    """Finish the samples and lay the reply out; mismatches by sample, None in a linear session."""
    if isinstance(picked, EmptyReason):
        return parts_of(tensors_of([], picked, metadata))
    is_tree = mismatches is not None
    told: list[JsonObject] = [{} for _ in picked]
    if mismatches is not None:
        told = [_told_of(*pair) for pair in zip(picked, mismatches, strict=True)]
    samples = finished_samples_of(
        list(zip(picked, told, strict=True)),
        work.hooks.post_processor,
        wanted.metadata,
        has_reward=is_tree,
    )
    reason = None if samples else EmptyReason.NONE_PICKED
    return parts_of(tensors_of(samples, reason, metadata))


def _told_of(picked: PickedSample, mismatch: JsonObject) -> JsonObject:
    """What the metadata of a sample say of its leaf."""
    ids = picked.node.checkpoint.token_ids.tolist()
    return {"leaf": leaf_of(picked.node), "accumulated_token_ids": ids, **mismatch}
