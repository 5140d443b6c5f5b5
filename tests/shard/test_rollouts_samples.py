"""Samples over the application, with the simulated engine's own rows of experts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sessions.client.answers import Answer
from sessions.client.samples import parse_samples
from sessions.sim.experts import Layout
from sessions.tokens.prompts import PromptBuilder
from tests.support.rollouts import chat, create, error_of, message_of, open_rollouts

REPLAY = {"routing_replay": "1", "replay_layers": "4"}


@pytest.mark.parametrize(
    "settings", [{}, {"replay_incremental": "1"}, {"spool_dir": "spool"}], ids=str
)
async def test_the_rows_of_a_session_are_those_that_the_engine_gave(
    prompts: PromptBuilder, settings: dict[str, str], tmp_path: Path
):
    settings = {name: text.replace("spool", str(tmp_path)) for name, text in settings.items()}
    async with open_rollouts(prompts, "sim:?pad=30&copies=both", **REPLAY, **settings) as client:
        session = (await create(client))["session_id"]
        messages: list[object] = []
        for text in ("one", "two", "three"):
            messages.append(text)
            reply = await chat(client, session, *messages)
            assert "routed_experts" not in reply.text
            messages.append(message_of(reply))
        response = await client.post(f"/sessions/{session}/samples")
        assert response.headers["content-type"] == "application/octet-stream"
        answer = Answer(status=response.status_code, headers={}, body=response.content)
        (sample,) = parse_samples(answer).samples
        layout = Layout(layers=4, topk=2, experts=128, seed=0, pad=30)
        rows = np.frombuffer(layout.raw_rows(sample.tokens.tolist()[:-1]), "<i4")
        assert sample.rollout_routed_experts is not None
        assert sample.rollout_routed_experts.tolist() == rows.reshape(-1, 4, 60).tolist()
        assert sample.weight_versions == ["default"] * 3


async def test_refusals_have_the_one_shape(prompts: PromptBuilder):
    async with open_rollouts(prompts) as client:
        error_of(await client.post("/sessions/nope/samples"), 404)
        session = (await create(client))["session_id"]
        path = f"/sessions/{session}/samples"
        assert error_of(await client.post(path, json={"max_seq_len": "1"}), 400)["param"] == (
            "max_seq_len"
        )
        error_of(await client.get(path), 405)
        await client.delete(f"/sessions/{session}")
        assert error_of(await client.post(path), 410)["code"] == "session_gone"


async def test_a_flagged_session_is_a_422_that_names_the_cause(prompts: PromptBuilder):
    # Four layers of 2 experts do not divide into three.
    rules = {**REPLAY, "replay_layers": "3"}
    async with open_rollouts(prompts, **rules) as client:
        session = (await create(client))["session_id"]
        assert (await chat(client, session, "one")).status_code == 200
        error = error_of(await client.post(f"/sessions/{session}/samples"), 422)
        assert error["code"] == "replay_mismatch"
        assert "turn 1" in error["message"]
        assert "a row has 8 numbers, which are not 3 layers" in error["message"]
        record = (await client.get(f"/sessions/{session}")).json()["records"][0]
        assert "not 3 layers" in record["replay_error"]
