"""Faults of documents, their counter, and what is sent by hand."""

import json
import math
from typing import Any

import msgspec
import pytest

from sessions.errors.unseen import SimRefusalError
from sessions.sim.dialects import DIALECTS
from sessions.sim.experts import Layout, Piece
from sessions.sim.faults import (
    FaultCounter,
    Headers,
    experts_ids,
    first_bytes,
    flawed_blob,
    send_faulty,
    spoil,
    status_reply,
)
from sessions.sim.options import Dialect
from sessions.sim.reply import render
from sessions.sim.script import Fault

error_of = DIALECTS[Dialect.SGLANG].error_of


def fault(kind: str, **fields: object) -> Fault:
    return msgspec.convert({"kind": kind, **fields}, Fault)


def document() -> dict[str, Any]:
    return {
        "choices": [
            {
                "message": {"content": "hi"},
                "prompt_token_ids": [1, 2],
                "logprobs": {"content": [{"logprob": -1.0}, {"logprob": -2.0}]},
                "meta_info": {
                    "completion_tokens": 2,
                    "output_token_logprobs": [[-1.0, 5, "h"], [-2.0, 6, "i"]],
                },
            }
        ],
        "usage": {"completion_tokens": 2},
    }


def spoilt(kind: str, **fields: object) -> dict[str, Any]:
    made = document()
    spoil(made, fault(kind, **fields))
    return made


def test_each_fault_spoils_what_it_names():
    assert spoilt("no_choices")["choices"] == []
    assert spoilt("null_content")["choices"][0]["message"]["content"] is None
    assert spoilt("lone_surrogate")["choices"][0]["message"]["content"] == "\ud83dhi"
    assert "meta_info" not in spoilt("no_meta_info")["choices"][0]
    assert "output_token_logprobs" not in spoilt("no_logprobs")["choices"][0]["meta_info"]
    assert spoilt("prompt_ids")["choices"][0]["prompt_token_ids"] == [1, 0]


def test_numbers_that_json_has_not_stand_in_both_lists():
    choice = spoilt("nan_logprobs")["choices"][0]
    for values in (
        [entry[0] for entry in choice["meta_info"]["output_token_logprobs"]],
        [entry["logprob"] for entry in choice["logprobs"]["content"]],
    ):
        assert math.isnan(values[0])
        assert values[1] == math.inf


def test_token_counts_are_wrong_or_missing_everywhere():
    wrong = spoilt("token_count", by=3)
    assert wrong["choices"][0]["meta_info"]["completion_tokens"] == 5
    assert wrong["usage"]["completion_tokens"] == 5
    missing = spoilt("no_token_count")
    assert "completion_tokens" not in missing["choices"][0]["meta_info"]
    assert missing["usage"] == {}


@pytest.mark.parametrize("kind", ["cut", "rows", "bad_base64", "broken_json", "chunked"])
def test_other_faults_leave_the_document(kind: str):
    assert spoilt(kind) == document()


def test_documents_without_metadata_can_be_spoilt():
    for kind in ("no_meta_info", "no_logprobs", "nan_logprobs", "token_count", "prompt_ids"):
        made = {
            "choices": [{"message": {"content": ""}, "logprobs": None}],
            "usage": {"completion_tokens": 2},
        }
        spoil(made, fault(kind))


def test_only_what_json_has_not_is_written_loosely():
    loose = {
        kind
        for kind in ("nan_logprobs", "lone_surrogate", "null_content", "token_count")
        if spoil(document(), fault(kind))
    }
    assert loose == {"nan_logprobs", "lone_surrogate"}


def test_rows_are_too_many_or_too_few():
    assert experts_ids([1, 2, 3], None) == [1, 2, 3]
    assert experts_ids([1, 2, 3], fault("cut")) == [1, 2, 3]
    assert experts_ids([1, 2, 3], fault("rows")) == [1, 2]
    assert experts_ids([1, 2, 3], fault("rows", by=2)) == [1, 2, 3, 3, 3]
    assert experts_ids([1], fault("rows", by=-9)) == []


def test_a_flaw_is_put_into_blobs_for_its_fault_only():
    blob = Layout(layers=3, topk=2, experts=9, seed=0, pad=1).blob([1, 2])
    assert flawed_blob(blob, None) is blob
    assert flawed_blob(blob, fault("rows")) is blob
    assert b"!" in b"".join(flawed_blob(blob, fault("bad_base64")).pieces())


def test_a_status_reply_is_the_engines_error_unless_it_is_scripted():
    status, headers, body = status_reply(fault("status"), error_of)
    assert (status, headers) == (500, [("content-type", "application/json")])
    assert json.loads(body) == {
        "object": "error",
        "message": "scripted fault",
        "type": "InternalServerError",
        "param": None,
        "code": 500,
    }
    scripted = fault("status", status=503, body={"a": None}, headers=[["retry-after", "1"]])
    assert status_reply(scripted, error_of) == (
        503,
        [("content-type", "application/json"), ("retry-after", "1")],
        b'{"a": null}',
    )
    text = fault("status", status=200, text="not JSON", headers=[["Content-Type", "text/html"]])
    assert status_reply(text, error_of) == (200, [("Content-Type", "text/html")], b"not JSON")


@pytest.mark.parametrize("value", [0, False, "", [], {}])
def test_an_empty_scripted_body_is_sent(value: object):
    assert json.loads(status_reply(fault("status", body=value), error_of)[2]) == value


def test_a_fault_with_times_happens_so_often_per_key():
    counter = FaultCounter()
    twice = fault("status", times=2, key="a")
    assert [counter.due(twice) for _ in range(4)] == [twice, twice, None, None]
    other = fault("status", times=1, key="b")
    assert counter.due(other) is other
    always = fault("status")
    assert [counter.due(always), counter.due(always), counter.due(None)] == [always, always, None]


def test_the_counter_forgets_its_oldest_keys():
    counter = FaultCounter()
    for index in range(5000):
        counter.due(fault("status", times=1, key=str(index)))
    assert len(counter._counts) == 4096
    assert counter.due(fault("status", times=1, key="4999")) is None
    assert counter.due(fault("status", times=1, key="0")) is not None


@pytest.mark.parametrize("count", [0, 1, 5, 50, 5000])
def test_the_first_bytes_of_a_body_are_exactly_so_many(count: int):
    blob = Layout(layers=3, topk=2, experts=9, seed=0, pad=1).blob(list(range(30)))
    body = render({"a": blob, "b": 1})
    whole = b"".join(body.pieces())
    assert b"".join(first_bytes(body, count)) == whole[:count]


class FakeWire:
    """Collects what is written and how it ended."""

    def __init__(self) -> None:
        self.standard_headers: Headers = [("server", "x")]
        self.sent = b""
        self.ends: list[str] = []

    def drop_standard_headers(self) -> None:
        self.ends.append("dropped")

    async def write(self, data: Piece) -> None:
        self.sent += bytes(data)

    def close(self) -> None:
        self.ends.append("close")

    def reset(self) -> None:
        self.ends.append("reset")


async def send(made: Fault) -> FakeWire:
    wire = FakeWire()

    async def wait_gone() -> None:
        wire.ends.append("waited")

    await send_faulty(wire, wait_gone, render({"a": 1}), made)
    return wire


HEAD = b"HTTP/1.1 200 OK\r\nserver: x\r\ncontent-type: application/json\r\ncontent-length: "


@pytest.mark.parametrize(
    ("made", "sent", "ends"),
    [
        (fault("cut"), b"", ["close", "waited"]),
        (
            fault("cut", after_bytes=0),
            HEAD + b"7\r\nconnection: close\r\n\r\n",
            ["close", "waited"],
        ),
        (
            fault("reset", after_bytes=2),
            HEAD + b'7\r\nconnection: close\r\n\r\n{"',
            ["reset", "waited"],
        ),
        (fault("stall", after_bytes=2), HEAD + b'7\r\nconnection: close\r\n\r\n{"', ["waited"]),
        (
            fault("length", by=-2),
            HEAD + b'5\r\nconnection: close\r\n\r\n{"a":1}',
            ["close", "waited"],
        ),
    ],
)
async def test_a_wire_fault_sends_what_it_says(made: Fault, sent: bytes, ends: list[str]):
    wire = await send(made)
    assert (wire.sent, wire.ends) == (sent, ends)


async def test_a_wire_fault_needs_a_wire():
    async def wait_gone() -> None:
        raise AssertionError

    with pytest.raises(SimRefusalError) as caught:
        await send_faulty(None, wait_gone, render({}), fault("cut"))
    assert caught.value.status == 501
