"""The echo: what arrived, and the odd replies that the query asks for."""

from hashlib import sha256

import httpx
import pytest


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_any_path_and_method_is_answered_with_what_arrived(
    client: httpx.AsyncClient, method: str
):
    reply = await client.request(
        method, "/a%2Fb/c?x=1&x=%20", content=b"body", headers={"X-Test": "1"}
    )
    found = reply.json()
    assert reply.status_code == 200
    assert (found["method"], found["query"]) == (method, "x=1&x=%20")
    assert (found["path"], found["raw_path"]) == ("/a/b/c", "/a%2Fb/c")
    assert ["x-test", "1"] in found["headers"]
    assert (found["body_bytes"], found["body_sha256"]) == (4, sha256(b"body").hexdigest())


async def test_other_methods_of_the_chat_path_are_echoed(client: httpx.AsyncClient):
    assert (await client.get("/v1/chat/completions")).json()["method"] == "GET"
    assert (await client.post("/v1/models")).json()["method"] == "POST"


async def test_head_has_no_body(client: httpx.AsyncClient):
    assert (await client.head("/x")).status_code == 200


@pytest.mark.parametrize(("status", "answer"), [("200", 200), ("418", 418), ("599", 599)])
async def test_a_status_can_be_asked_for(client: httpx.AsyncClient, status: str, answer: int):
    assert (await client.get(f"/x?sim_status={status}")).status_code == answer


@pytest.mark.parametrize("status", ["199", "600", "x", "", "-1"])
async def test_an_impossible_status_is_refused(client: httpx.AsyncClient, status: str):
    assert (await client.get(f"/x?sim_status={status}")).json()["param"] == "sim_status"


async def test_headers_can_be_asked_for(client: httpx.AsyncClient):
    reply = await client.get("/x?sim_cookies=1&sim_hop=1&sim_location=/y&sim_server=own&sim_date=d")
    assert reply.headers.get_list("set-cookie") == ["first=1; Path=/", "second=2; Path=/"]
    assert reply.headers["connection"] == "x-sim-hop"
    assert reply.headers["x-sim-hop"] == "1"
    assert reply.headers["location"] == "/y"
    assert reply.headers.get_list("server") == ["own"]
    assert reply.headers.get_list("date") == ["d"]


async def test_experts_and_text_can_be_asked_for(client: httpx.AsyncClient):
    found = (await client.get("/x?sim_replay=1")).json()
    assert found["choices"][0]["meta_info"].keys() == {"id", "routed_experts", "indexer_topk"}
    assert found["sglext"].keys() == {"routed_experts", "indexer_topk"}
    reply = await client.get("/x?sim_text=h%C3%A9")
    assert reply.text == "hé"
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert "choices" not in (await client.get("/x")).json()
