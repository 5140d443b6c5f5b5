"""What the engine says about itself, and the journal over HTTP."""

import asyncio

import httpx
import pytest

from tests.sim.conftest import Chat


@pytest.mark.parametrize("client", ["sim:?model=m&context=99&weight_version=v7"], indirect=True)
async def test_the_engine_says_what_it_serves(client: httpx.AsyncClient, chat: Chat):
    (model,) = (await client.get("/v1/models")).json()["data"]
    assert (model["id"], model["object"], model["max_model_len"]) == ("m", "model", 99)
    info = (await client.get("/get_model_info")).json()
    assert (info["model_path"], info["weight_version"]) == ("m", "v7")
    health = await client.get("/health")
    assert (health.status_code, health.content) == (200, b"")
    document = (await chat(return_meta_info=True)).json()
    assert document["model"] == "m"
    assert document["metadata"]["weight_version"] == "v7"
    assert document["choices"][0]["meta_info"]["weight_version"] == "v7"


@pytest.mark.parametrize("client", ["sim:?journal=2"], indirect=True)
async def test_the_journal_tells_what_the_engine_saw(client: httpx.AsyncClient, chat: Chat):
    for index in range(3):
        await client.post(
            "/v1/chat/completions?q=1",
            json={"messages": [], "input_ids": [index] * 100, "unknown": index},
            headers=[("X-A", "1"), ("X-A", "2")],
        )
    await client.get("/elsewhere")
    found = (await client.get("/sim/requests")).json()
    assert found["seen"] == 3
    assert [entry["number"] for entry in found["requests"]] == [2, 3]
    entry = found["requests"][-1]
    assert [pair for pair in entry["headers"] if pair[0] == "x-a"] == [["x-a", "1"], ["x-a", "2"]]
    assert entry["query"] == "q=1"
    assert entry["body"]["unknown"] == 2
    assert entry["body"]["input_ids"]["count"] == 100
    assert (await client.delete("/sim/requests")).status_code == 204
    assert (await client.get("/sim/requests")).json() == {"seen": 0, "requests": []}


async def test_the_journal_can_hold_what_only_pythons_parser_takes(client: httpx.AsyncClient):
    raw = b'{"messages": [{"role": "user", "content": "\\ud83d"}]}'
    assert (await client.post("/v1/chat/completions", content=raw)).status_code == 200
    assert b"\\ud83d" in (await client.get("/sim/requests")).content


@pytest.mark.parametrize(
    ("client", "name"),
    [
        ("sim:?latency_s=60", "sglang:num_running_reqs"),
        ("sim:?latency_s=60&dialect=vllm", "vllm:num_requests_running"),
    ],
    indirect=["client"],
)
async def test_the_metrics_tell_the_requests_in_flight(
    client: httpx.AsyncClient, chat: Chat, name: str
):
    async def running() -> str:
        return (await client.get("/metrics")).text

    assert await running() == f'{name}{{model_name="sim"}} 0.0\n'
    waiting = asyncio.create_task(chat())
    while " 1.0" not in await running():  # noqa: ASYNC110 - each look lets the request go on
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert " 0.0" in await running()
