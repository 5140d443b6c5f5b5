"""Sessions that are trees, through the core: what is asked of the engine, kept and shown."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
import safetensors.numpy

from sessions.client.answers import Answer
from sessions.client.samples import Samples, parse_samples
from sessions.core.open_sessions.session_options import SessionOptions
from sessions.core.samples.hooks import SampleHooks
from sessions.core.samples.session_tree import Leaf, SessionTree
from sessions.engine.engine import EngineReply
from sessions.errors.samples import SampleHookError
from sessions.errors.turns import TruncatedTurnError, TurnLimitError
from sessions.replay.session_blobs import CANDIDATES
from tests.support.desk import Desk, assistant, body_of, is_recorded
from tests.support.engines import json_reply
from tests.support.samples import rows_for
from tests.support.waiting import wait_until_async

OpenDesk = Callable[..., Any]


def echo(desk: Desk, **changes: Any) -> Callable[..., EngineReply]:  # noqa: ANN401 - JSON
    """An engine that says what it was asked last."""

    def answer(request: dict[str, Any]) -> EngineReply:
        document = desk.document(f"re: {request['messages'][-1]['content']}", **changes)
        document["id"] = f"chat-{len(desk.engine.requests)}"
        return json_reply(document)

    return answer


async def open_tree(desk: Desk, **options: Any) -> str:  # noqa: ANN401 - JSON
    """A tree: one, then two; a branch beside two; a root that goes on."""
    desk.engine.answers = [echo(desk)]
    session: str = desk.open(mode="tree", **options)
    one = ["one", assistant("re: one")]
    await desk.chat(session, "one")
    await desk.chat(session, *one, "two")
    await desk.chat(session, *one, "other")
    await desk.chat(session, "summary")
    await desk.chat(session, "summary", assistant("re: summary"), "three")
    return session


async def test_every_turn_is_recorded_and_says_where_it_stands(open_desk: OpenDesk):
    async with open_desk() as desk:
        read = await desk.read(await open_tree(desk))
        assert [record["node"] for record in read["records"]] == [
            {"id": "n0", "parent": None, "seq": 0},
            {"id": "n1", "parent": "n0", "seq": 1},
            {"id": "n2", "parent": "n0", "seq": 2},
            {"id": "n3", "parent": None, "seq": 3},
            {"id": "n4", "parent": "n3", "seq": 4},
        ]
        tree = read["metadata"]["tree"]
        assert [node["parent"] for node in tree["nodes"]] == [None, "n0", "n0", None, "n3"]
        assert [node["response_id"] for node in tree["nodes"]] == [
            f"chat-{i + 1}" for i in range(5)
        ]
        assert [leaf["path_node_ids"] for leaf in tree["leaves"]] == [
            ["n0", "n1"],
            ["n0", "n2"],
            ["n3", "n4"],
        ]


async def test_the_prompt_of_a_turn_begins_with_the_tokens_of_its_parent(open_desk: OpenDesk):
    async with open_desk() as desk:
        read = await desk.read(await open_tree(desk))
        tokens: dict[str | None, list[int]] = {None: []}
        nodes = read["metadata"]["tree"]["nodes"]
        for record, node in zip(read["records"], nodes, strict=True):
            prompt = record["request"]["input_ids"]
            meta = record["response"]["choices"][0]["meta_info"]
            own = [*prompt, *(entry[1] for entry in meta["output_token_logprobs"])]
            parent = tokens[node["parent"]]
            assert prompt[: len(parent)] == parent
            assert node["completion_span"] == [len(prompt), len(own)]
            assert node["num_tokens"] == len(own)
            tokens[node["id"]] = own
        assert read["metadata"]["accumulated_token_ids"] == tokens["n4"]
        assert read["metadata"]["tito_session_mismatch"] == []


async def test_records_of_a_tree_are_chosen_in_the_order_of_their_commits(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = await open_tree(desk)
        read = await desk.read(session, b"turns=1-2&fields=node")
        assert [record["node"]["id"] for record in read["records"]] == ["n1", "n2"]
        assert "metadata" not in read


async def test_turns_that_run_at_once_are_all_recorded(open_desk: OpenDesk):
    async with open_desk() as desk:
        desk.engine.answers = [echo(desk)]
        session = desk.open(mode="tree")
        await desk.chat(session, "one")
        desk.engine.gate.clear()
        history = ["one", assistant("re: one"), "two"]
        running = [desk.chat_later(session, *history, seed=number) for number in range(4)]
        await wait_until_async(lambda: desk.engine.waiting == 4, "four turns at the engine")
        desk.engine.gate.set()
        assert all([is_recorded(await turn) for turn in running])
        records = (await desk.read(session))["records"]
        assert [record["node"]["parent"] for record in records] == [None, *["n0"] * 4]


async def test_what_goes_on_from_a_cut_reply_is_refused_before_the_engine(open_desk: OpenDesk):
    async with open_desk() as desk:
        desk.engine.answers = [echo(desk, finish_reason="length"), echo(desk)]
        session = desk.open(mode="tree")
        await desk.chat(session, "one")
        with pytest.raises(TruncatedTurnError) as caught:
            await desk.chat(session, "one", assistant("re: one"), "two")
        assert caught.value.is_unrecorded_turn
        assert len(desk.engine.requests) == 1
        assert is_recorded(await desk.chat(session, "one"))
        records = (await desk.read(session))["records"]
        assert [record["node"]["parent"] for record in records] == [None, None]
        nodes = (await desk.read(session))["metadata"]["tree"]["nodes"]
        assert [node["truncated"] for node in nodes] == [True, False]


@pytest.mark.parametrize("limit", ["max_turns", "max_tree_turns"])
async def test_a_full_tree_refuses_finally_and_a_late_turn_is_told(
    open_desk: OpenDesk, limit: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    options: dict[str, Any] = {limit: 2}
    async with open_desk(routing_replay=True, session=SessionOptions(**options)) as desk:
        desk.engine.answers = [with_rows(desk, width=250)]
        session = desk.open(mode="tree")
        await desk.chat(session, "one")
        desk.engine.gate.clear()
        running = [desk.chat_later(session, text) for text in ("two", "three")]
        await wait_until_async(lambda: desk.engine.waiting == 2, "two turns at the engine")
        desk.engine.gate.set()
        assert sorted([is_recorded(await turn) for turn in running]) == [False, True]
        assert f"turn not recorded session={session} reason=full" in caplog.text
        with pytest.raises(TurnLimitError):
            await desk.chat(session, "four")
        assert len((await desk.read(session))["records"]) == 2
        assert desk.replay.usage().blobs == 2, "nothing stays of the late turn"


async def test_a_failed_turn_leaves_a_tree_as_it_was(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = await open_tree(desk)
        before = await desk.read(session)
        desk.engine.answers = [json_reply({"error": "busy"}, 503)]
        await desk.chat(session, "one", assistant("re: one"), "failing")
        assert await desk.read(session) == before


def with_rows(desk: Desk, width: int = 8, shift: int = 0) -> Callable[..., EngineReply]:
    """The same, with the rows that it is asked for; shifted, they have other numbers."""

    def answer(request: dict[str, Any]) -> EngineReply:
        document = desk.document(f"re: {request['messages'][-1]['content']}")
        meta = document["choices"][0]["meta_info"]
        start = request.get("routed_experts_start_len", 0)
        end = len(request["input_ids"]) + len(meta["output_token_logprobs"]) - 1
        rows = rows_for(end - start, 1, width, start=start) + (shift << 20)
        meta["routed_experts"] = base64.b64encode(rows.tobytes()).decode()
        return json_reply(document)

    return answer


async def test_a_turn_asks_for_the_rows_that_its_parent_does_not_have(open_desk: OpenDesk):
    async with open_desk(routing_replay=True, incremental=True) as desk:
        desk.engine.answers = [with_rows(desk)]
        session = desk.open(mode="tree")
        await desk.chat(session, "one")
        for text in ("two", "other"):
            await desk.chat(session, "one", assistant("re: one"), text)
        await desk.chat(session, "root")
        read = await desk.read(session)
        starts = [body.get("routed_experts_start_len", 0) for body in desk.engine.bodies]
        first = read["metadata"]["tree"]["nodes"][0]["num_tokens"]
        assert starts == [0, first - 1, first - 1, 0]
        assert not any("replay_error" in record for record in read["records"])


async def samples(desk: Desk, session: str, **body: Any) -> Samples:  # noqa: ANN401 - JSON
    reply = await desk.core.samples(session, desk.request(json.dumps(body).encode()))
    return parse_samples(Answer(status=200, headers={}, body=await body_of(reply)))


async def test_every_leaf_that_is_no_retry_becomes_a_sample(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = await open_tree(desk)
        found = await samples(desk, session, metadata={"reward": 0.5, "task": "t"})
        read = await desk.read(session)
        # n1 was followed by its sibling n2; of equal depth the latest comes first.
        assert [s.metadata["leaf"]["node_id"] for s in found.samples] == ["n4", "n2"]
        assert found.samples[1].metadata["leaf"]["path_node_ids"] == ["n0", "n2"]
        for sample in found.samples:
            assert sample.tokens.tolist() == sample.metadata["accumulated_token_ids"]
            assert sample.metadata["tito_session_mismatch"] == []
            assert [told["turn"] for told in sample.metadata["lifecycle"]] == [1, 2]
            assert (sample.reward, sample.metadata["task"]) == (0.5, "t")
            length = read["metadata"]["tree"]["nodes"][0]["num_tokens"]
            assert len(sample.tokens) > length
        assert found.session_metadata == read["metadata"]


async def test_a_completion_that_leaves_share_trains_once(open_desk: OpenDesk):
    async with open_desk() as desk:
        desk.engine.answers = [echo(desk)]
        session = desk.open(mode="tree")
        await desk.chat(session, "one")
        one = ["one", assistant("re: one")]
        for text in ("two", "other"):
            await desk.chat(session, *one, text)
            await desk.chat(session, *one, text, assistant(f"re: {text}"), "more")
        first, second = (await samples(desk, session)).samples
        shared = len(desk.sampled_ids("re: one"))
        assert first.loss_mask[:shared].tolist() == [1] * shared
        assert second.loss_mask[:shared].tolist() == [0] * shared
        own = len(desk.sampled_ids("re: two")) + len(desk.sampled_ids("re: more"))
        assert second.loss_mask.sum() == own
        assert [first.reward, second.reward] == [None, None]


async def test_the_rows_of_a_leaf_are_those_of_its_path(open_desk: OpenDesk):
    async with open_desk(routing_replay=True, incremental=True) as desk:
        desk.engine.answers = [with_rows(desk)]
        session = desk.open(mode="tree")
        await desk.chat(session, "one")
        for text in ("two", "a longer question"):
            await desk.chat(session, "one", assistant("re: one"), text)
        await desk.chat(session, "root")
        for sample in (await samples(desk, session)).samples:
            rows = len(sample.tokens) - 1
            assert sample.rollout_routed_experts is not None
            found = sample.rollout_routed_experts.reshape(rows, 1, 8)
            assert found.tolist() == rows_for(rows, 1, 8).tolist()


async def test_the_hooks_of_the_rules_are_used(open_desk: OpenDesk):
    def first_leaf(tree: SessionTree, metadata: dict[str, Any]) -> list[Leaf]:
        return [leaf for leaf in tree.leaves if leaf.node_id == metadata["wanted"]]

    def rewarded(drafts: Any, metadata: Any) -> Any:  # noqa: ANN401 - a hook
        for draft in drafts:
            draft.reward = len(metadata["wanted"])
        return drafts

    hooks = SampleHooks(picker=first_leaf, post_processor=rewarded)
    async with open_desk(hooks=hooks) as desk:
        session = await open_tree(desk)
        (sample,) = (await samples(desk, session, metadata={"wanted": "n1"})).samples
        assert (sample.metadata["leaf"]["node_id"], sample.reward) == ("n1", 2)
        assert (await samples(desk, session, metadata={"wanted": ""})).empty_reason == "none_picked"
        with pytest.raises(SampleHookError, match="the picker raised KeyError: 'wanted'"):
            await samples(desk, session)
        assert (await samples(desk, session, metadata={"wanted": "n1"})).samples


async def test_a_linear_session_can_be_rewarded_too_and_tells_nothing_else(open_desk: OpenDesk):
    async with open_desk() as desk:
        session = desk.open()
        await desk.chat(session, "one")
        (plain,) = (await samples(desk, session)).samples
        (rewarded,) = (await samples(desk, session, metadata={"reward": 1})).samples
        assert (plain.reward, sorted(plain.metadata)) == (None, ["lifecycle"])
        assert (rewarded.reward, sorted(rewarded.metadata)) == (1, ["lifecycle", "reward"])
        assert plain.loss_mask.tolist() == rewarded.loss_mask.tolist()


async def test_a_turn_shares_its_rows_with_its_parent_whatever_came_since(open_desk: OpenDesk):
    async with open_desk(routing_replay=True) as desk:
        desk.engine.answers = [with_rows(desk, width=250)]
        session = desk.open(mode="tree")
        await desk.chat(session, "one " * 100)
        for number in range(CANDIDATES + 1):
            # Rows of another conversation begin differently.
            desk.engine.answers = [with_rows(desk, width=250, shift=number + 1)]
            await desk.chat(session, f"root {number}")
        desk.engine.answers = [with_rows(desk, width=250)]
        before = desk.replay.stored_bytes
        first = (await desk.read(session, b"turns=0&replay=0"))["metadata"]["tree"]["nodes"][0]
        await desk.chat(session, "one " * 100, assistant(f"re: {'one ' * 100}"), "two")
        last = (await desk.read(session, b"turns=0&replay=0"))["metadata"]["tree"]["nodes"][-1]
        new_rows = last["num_tokens"] - first["num_tokens"]
        row_bytes = 250 * 4 * 4 / 3
        assert desk.replay.stored_bytes - before < (new_rows + 1) * row_bytes + 8


async def test_samples_of_a_tree_always_tell_a_reward_and_others_only_one_that_was_assigned(
    open_desk: OpenDesk,
):
    async with open_desk() as desk:
        told = []
        for mode in ("tree", "linear"):
            session = desk.open(mode=mode)
            await desk.chat(session, "one")
            body = await body_of(await desk.core.samples(session, desk.request(b"")))
            document = json.loads(safetensors.numpy.load(body)["_samples_meta"].tobytes())
            told.append([sample.get("reward", "absent") for sample in document["samples"]])
        assert told == [[None], ["absent"]]
