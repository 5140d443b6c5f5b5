"""The decoder takes what the server makes, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from starlette.responses import Response

from sessions.client.answers import Answer
from sessions.client.errors import StatusError, UnusableReplyError
from sessions.client.samples import Samples, parse_samples
from sessions.core.samples.assembly import EmptyReason, Sample, SampleRules, assemble
from sessions.core.samples.layout import parts_of
from sessions.core.samples.tensors import tensors_of
from sessions.errors.samples import SamplesMisalignedError
from tests.client.conftest import Ask
from tests.support.fake_server import FakeServer
from tests.support.samples import blob_of, decode, finished, rows_for, turn_of, whole_of

META = "_samples_meta"
Tensors = dict[str, np.ndarray]
Document = dict[str, Any]


def served(*, replay: bool = True, reward: object = None) -> bytes:
    """What a server sends for a turn of four tokens."""
    rows = [("routed_experts", blob_of(rows_for(3, 2, 2).tobytes()))] if replay else []
    turn = turn_of(
        [1, 2],
        [10, 11],
        replay=rows,
        layers=2,
        weight_version="v",
        prompt_tokens=2,
        cached_tokens=1,
    )
    made = assemble([turn], SampleRules(max_trim_count=0), decode)
    assert isinstance(made, Sample)
    sample = finished(made) if reward is None else replace(finished(made), reward=reward)
    sample = replace(sample, has_reward=reward is not None)
    return whole_of(parts_of(tensors_of([sample], None, {"max_trim_tokens": 0})))


def parsed(body: bytes) -> Samples:
    return parse_samples(Answer(status=200, headers={}, body=body))


def test_a_sample_is_decoded_into_arrays():
    found = parsed(served())
    assert (found.empty_reason, found.session_metadata) == (None, {"max_trim_tokens": 0})
    (sample,) = found.samples
    assert sample.tokens.dtype == np.int64
    assert sample.tokens.tolist() == [1, 2, 10, 11]
    assert sample.loss_mask.dtype == np.uint8
    assert sample.loss_mask.tolist() == [1, 1]
    assert sample.rollout_log_probs.tolist() == [-10.0, -11.0]
    assert sample.rollout_routed_experts is not None
    assert sample.rollout_routed_experts.dtype == np.int32
    assert sample.rollout_routed_experts.tolist() == rows_for(3, 2, 2).tolist()
    assert sample.rollout_indexer_topk is None
    assert (sample.response, sample.response_length) == ("<10><11>", 2)
    assert (sample.status, sample.weight_versions) == ("completed", ["v"])
    assert (sample.cached_tokens, sample.total_prompt_tokens) == (1, 2)
    assert sample.metadata["lifecycle"]["turn"] == 1
    assert sample.reward is None


@pytest.mark.parametrize("reward", [1, 0.5, {"format": 1}, False])
def test_a_reward_is_decoded(reward: object):
    assert parsed(served(reward=reward)).samples[0].reward == reward


@pytest.mark.parametrize("reason", list(EmptyReason))
def test_no_sample_says_why(reason: EmptyReason):
    found = parsed(whole_of(parts_of(tensors_of([], reason, {}))))
    assert (found.samples, found.empty_reason) == ([], reason.value)


def changed(change: Callable[[Tensors, Document], None]) -> bytes:
    tensors = safetensors.numpy.load(served())
    document = json.loads(tensors[META].tobytes())
    change(tensors, document)
    if META in tensors:
        tensors[META] = np.frombuffer(json.dumps(document).encode(), "u1")
    return safetensors.numpy.save(tensors)


def without(name: str) -> Callable[[Tensors, Document], None]:
    def change(tensors: Tensors, _: Document) -> None:
        del tensors[name]

    return change


def putting(name: str, array: np.ndarray) -> Callable[[Tensors, Document], None]:
    def change(tensors: Tensors, _: Document) -> None:
        tensors[name] = array

    return change


def telling(**members: Any) -> Callable[[Tensors, Document], None]:  # noqa: ANN401 - JSON
    return lambda _, document: document.update(members)


def sampling(**members: Any) -> Callable[[Tensors, Document], None]:  # noqa: ANN401 - JSON
    def change(_: Tensors, document: Document) -> None:
        document["samples"][0] |= members

    return change


NULLS = ["rollout_routed_experts", "rollout_indexer_topk"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (without(META), "no _samples_meta"),
        (without("tokens.0"), "no tensor tokens.0"),
        (without("loss_mask.0"), "no tensor loss_mask.0"),
        (without("rollout_routed_experts.0"), "no tensor rollout_routed_experts.0"),
        (putting("tokens.1", np.zeros(1)), "nothing refers to tokens.1"),
        (putting("rollout_indexer_topk.0", np.zeros((3, 1), "i4")), "nothing refers to rollout_i"),
        (putting("tokens.0", np.zeros(4, "i4")), "tokens.0 is int32 instead of int64"),
        (putting("loss_mask.0", np.ones(2, "i1")), "loss_mask.0 is int8 instead of uint8"),
        (putting("rollout_routed_experts.0", np.ones((3, 2), "i8")), "int64 instead of int32"),
        (putting("rollout_log_probs.0", np.ones(2, "f4")), "float32 instead of float64"),
        (putting("tokens.0", np.zeros((4, 1), "i8")), r"tokens.0 has the shape \(4, 1\)"),
        (putting("loss_mask.0", np.ones(3, "u1")), r"loss_mask.0 has the shape \(3,\)"),
        (putting("rollout_routed_experts.0", np.ones((4, 2), "i4")), r"has the shape \(4, 2\)"),
        (putting("rollout_routed_experts.0", np.ones(3, "i4")), r"has the shape \(3,\)"),
        (sampling(nulls=NULLS), "nothing refers to rollout_routed_experts.0"),
        (sampling(nulls=[*NULLS, "tokens"]), "sample 0 has the nulls"),
        (sampling(nulls=None), "sample 0 has no nulls"),
        (sampling(response_length=5), "tokens.0 has the shape"),
        (sampling(response_length=True), "sample 0 has no response_length"),
        (sampling(status=1), "sample 0 has no status"),
        (sampling(prefix_cache_info={}), "sample 0 has no counts"),
        (telling(samples=[1]), "sample 0 is no object"),
        (telling(samples=None), "lacks samples"),
        (telling(session_metadata=[]), "lacks samples, session_metadata"),
        (telling(empty_reason=1), "lacks samples"),
        (telling(empty_reason="no_records"), "1 samples with the empty_reason 'no_records'"),
        (telling(samples=[]), "nothing refers to loss_mask.0, rollout"),
    ],
)
def test_anything_else_is_refused(change: Callable[[Tensors, Document], None], told: str):
    with pytest.raises(UnusableReplyError, match=told):
        parsed(changed(change))


@pytest.mark.parametrize("array", [np.zeros(3, "i1"), np.zeros((1, 3), "u1")])
def test_a_document_of_another_type_is_refused(array: np.ndarray):
    with pytest.raises(UnusableReplyError, match="no _samples_meta of bytes"):
        parsed(safetensors.numpy.save({META: array}))


@pytest.mark.parametrize("text", [b"{", b"[]", b"{}", b"\xff"])
def test_a_document_that_is_none_is_refused(text: bytes):
    with pytest.raises(UnusableReplyError, match="_samples_meta"):
        parsed(safetensors.numpy.save({META: np.frombuffer(text, "u1")}))


def test_no_sample_without_a_reason_is_refused():
    document: Document = {"samples": [], "session_metadata": {}, "empty_reason": None}
    body = safetensors.numpy.save({META: np.frombuffer(json.dumps(document).encode(), "u1")})
    with pytest.raises(UnusableReplyError, match="0 samples with the empty_reason None"):
        parsed(body)


@pytest.mark.parametrize("cut", [0, 4, 50, 600])
def test_a_blob_that_is_cut_is_refused(cut: int):
    with pytest.raises(UnusableReplyError, match="no safetensors"):
        parsed(served()[:cut])


async def test_both_clients_ask_for_samples(ask: Ask, server: FakeServer):
    server.canned["/sessions/abc/samples"] = Response(served())
    for args, sent in [
        (("abc",), b""),
        (("abc", 5), b'{"max_seq_len": 5}'),
        (("abc", None, {"reward": 1}), b'{"metadata": {"reward": 1}}'),
    ]:
        found = await ask("samples", *args)
        assert found.samples[0].tokens.tolist() == [1, 2, 10, 11]
        assert server.seen[-1].method == "POST"
        assert server.bodies[-1] == sent


async def test_a_session_of_which_no_sample_can_be_made_says_why(ask: Ask, server: FakeServer):
    error = SamplesMisalignedError("turn 2 has no token between")
    server.canned["/sessions/abc/samples"] = Response(error.body, error.status)
    with pytest.raises(StatusError, match="422 samples_misaligned: turn 2 has") as caught:
        await ask("samples", "abc")
    assert caught.value.details.code == "samples_misaligned"
