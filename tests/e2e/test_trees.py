"""Trees on real groups: an agent with sub-agents, compaction, and samples of one turn at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from sessions.client.async_client import AsyncSessionClient
from sessions.client.errors import StatusError
from sessions.client.samples import Sample
from sessions.routing.ids import owner_of
from tests.support.group import Groups

ENV = {
    "SESSIONS_ENGINE_URL": "sim:?latency_s=0.05&words=4",
    "SESSIONS_MODE": "tree",
    "SESSIONS_ROUTING_REPLAY": "1",
    "SESSIONS_REPLAY_INCREMENTAL": "1",
    "SESSIONS_REPLAY_LAYERS": "4",
}
SESSIONS = 6


@dataclass
class Chatting:
    """A conversation that can be branched: what a copy says does not reach the original."""

    http: httpx.AsyncClient
    messages: list[dict[str, Any]] = field(default_factory=list)

    def branched(self) -> Chatting:
        return Chatting(self.http, list(self.messages))

    async def say(self, text: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        self.messages.append({"role": "user", "content": text})
        body = {"messages": self.messages, "model": "sim", **fields}
        reply = await self.http.post("chat/completions", json=body)
        assert reply.status_code == 200, reply.text
        assert "x-turn-recorded" not in reply.headers
        choice: dict[str, Any] = reply.json()["choices"][0]
        self.messages.append(choice["message"])
        return choice


async def play(http: httpx.AsyncClient) -> None:
    """The turns by their places in the tree; the names of siblings are not told."""
    main = Chatting(http)
    await main.say("find the fault")  # n0
    helper = Chatting(http)
    await asyncio.gather(
        main.say("look at the log"),
        helper.say("you are a sub-agent: read the code"),
    )  # n1, n2 in any order
    samples = [main.branched() for _ in range(3)]
    await asyncio.gather(*(each.say("what next?") for each in samples), helper.say("and the tests"))
    await samples[1].say("go on")  # one of the three goes on
    summary = Chatting(http)
    await summary.say("summary: the log and the code were read")
    await summary.say("go on")
    cut = summary.branched()
    choice = await cut.say("a title, please", max_tokens=2)
    assert choice["finish_reason"] == "length"
    with_cut = {"messages": [*cut.messages, {"role": "user", "content": "more"}], "model": "sim"}
    refused = await http.post("chat/completions", json=with_cut)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "turn_truncated")
    assert refused.headers["x-should-retry"] == "false"


def check_records(found: Any) -> dict[str, list[int]]:  # noqa: ANN401 - JSON
    """The tokens of each turn; every prompt begins with those of the turn's parent."""
    nodes = found.metadata["tree"]["nodes"]
    by_name: dict[str, list[int]] = {}
    for record, node in zip(found.records, nodes, strict=True):
        told = {name: node[name] for name in ("id", "parent", "seq")}
        assert record["node"] == told
        prompt = record["request"]["input_ids"]
        meta = record["response"]["choices"][0]["meta_info"]
        before = by_name[node["parent"]] if node["parent"] is not None else []
        assert prompt[: len(before)] == before
        start = record["request"].get("routed_experts_start_len", 0)
        assert start == max(0, len(before) - 1)
        by_name[node["id"]] = [*prompt, *(entry[1] for entry in meta["output_token_logprobs"])]
        assert node["completion_span"] == [len(prompt), len(by_name[node["id"]])]
    return by_name


def shape_of(found: Any) -> list[int]:  # noqa: ANN401 - JSON
    """How many turns lead to each leaf, sorted."""
    return sorted(len(leaf["path_node_ids"]) for leaf in found.metadata["tree"]["leaves"])


def trained_of(samples: list[Sample]) -> int:
    return sum(int(sample.loss_mask.sum()) for sample in samples)


@pytest.mark.parametrize("shards", [1, 2])
async def test_branching_agents_are_recorded_and_become_samples(groups: Groups, shards: int):
    group = groups.start(shards=shards, env=ENV)
    async with AsyncSessionClient(group.url) as client:
        opened = [await client.create() for _ in range(SESSIONS)]
        assert len({owner_of(s.session_id, shards) for s in opened}) == shards
        clients = [httpx.AsyncClient(base_url=f"{s.base_url}/", timeout=30) for s in opened]
        await asyncio.gather(*(play(http) for http in clients))
        for http in clients:
            await http.aclose()
        for session in opened:
            found = await client.records(session.session_id)
            assert len(found.records) == 11
            tokens = check_records(found)
            # The line of the agent, two samples that did not go on, the sub-agent, the title.
            assert shape_of(found) == [2, 3, 3, 3, 4]
            got = await client.samples(session.session_id, metadata={"reward": 1})
            names = [sample.metadata["leaf"]["node_id"] for sample in got.samples]
            for name, sample in zip(names, got.samples, strict=True):
                assert sample.tokens.tolist() == tokens[name]
                rows = sample.rollout_routed_experts
                assert rows is not None
                assert rows.shape == (len(tokens[name]) - 1, 4, 2)
                is_cut = sample.status == "truncated"
                assert bool(sample.metadata["tito_session_mismatch"]) == is_cut
                assert sample.reward == 1
            # Retries are gone, and what two leaves share is trained on once.
            nodes = {node["id"]: node for node in found.metadata["tree"]["nodes"]}
            paths = [sample.metadata["leaf"]["path_node_ids"] for sample in got.samples]
            spans = [nodes[name]["completion_span"] for name in {n for path in paths for n in path}]
            assert trained_of(got.samples) == sum(stop - start for start, stop in spans)
            assert len(names) in (3, 4)


@pytest.mark.parametrize("shards", [1])
async def test_a_project_has_its_own_hooks_and_its_own_limit(groups: Groups, shards: int):
    env = {
        **ENV,
        "SESSIONS_MAX_TREE_TURNS": "2",
        "SESSIONS_SAMPLE_PICKER": "tests.support.own_hooks:oldest_first",
        "SESSIONS_SAMPLE_POST_PROCESSOR": "tests.support.own_hooks:reward_length",
    }
    group = groups.start(shards=shards, env=env)
    async with AsyncSessionClient(group.url) as client:
        session = await client.create()
        async with httpx.AsyncClient(base_url=f"{session.base_url}/", timeout=30) as http:
            for text in ("one", "two"):
                await Chatting(http).say(text)
            body = {"messages": [{"role": "user", "content": "three"}], "model": "sim"}
            refused = await http.post("chat/completions", json=body)
            told = refused.json()["error"]["code"]
            assert (refused.status_code, told) == (422, "turn_limit_reached")
        got = await client.samples(session.session_id, metadata={"factor": 2})
        assert [s.metadata["leaf"]["node_id"] for s in got.samples] == ["n0", "n1"]
        assert [s.reward for s in got.samples] == [2 * s.response_length for s in got.samples]
        none = await client.samples(session.session_id, metadata={"factor": 2, "least": 2})
        assert (none.samples, none.empty_reason) == ([], "none_picked")
        with pytest.raises(StatusError, match="sample_hook_failed: the post-processor raised KeyE"):
            await client.samples(session.session_id)


def test_a_hook_that_is_not_there_stops_the_start(groups: Groups):
    env = {**ENV, "SESSIONS_SAMPLE_PICKER": "tests.support.own_hooks:nothing"}
    group = groups.start(env=env, wait_ready=False)
    assert group.wait_exit() == 71
    assert "SESSIONS_SAMPLE_PICKER='tests.support.own_hooks:nothing' is refused" in group.log()
