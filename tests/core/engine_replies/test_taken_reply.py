import json

import pytest

from sessions.core.engine_replies.taken_reply import TakenReply, match_placeholders, read_taken
from sessions.core.texts.json_text import Json
from sessions.core.texts.shared_text import IdsText
from sessions.replay.blobs import ReplayBlob
from sessions.replay.budget import IngestBudget
from sessions.replay.intake import Intake
from sessions.replay.splice import SplicedText
from sessions.replay.taken import TakenBlob
from tests.support.slow_store import SlowBlob, SlowStore

BLOB, OTHER, SHORT = "QUJD" * 100, "REVG" * 100, "QUJD"


def bytes_of(blob: ReplayBlob) -> bytes:
    return blob.read(0, blob.size_bytes)


def joined(text: SplicedText) -> bytes:
    return b"".join(part if isinstance(part, bytes) else bytes_of(part) for part in text.parts)


def replay_of(reply: TakenReply) -> list[tuple[str, bytes]]:
    return [(field, bytes_of(blob)) for field, blob in reply.replay]


async def read(body: bytes, store: SlowStore | None = None) -> TakenReply:
    intake = Intake(store or SlowStore(), "s", IngestBudget(1 << 30))
    if not intake.feed(memoryview(body)):
        await intake.wait_room()
    taken = await intake.finish()
    reply = await read_taken(taken, IdsText())
    assert joined(reply.raw) == body
    return reply


def engine_reply(**more: Json) -> dict[str, Json]:
    meta = {"routed_experts": BLOB, "indexer_topk": OTHER, "id": "x"}
    choices = [{"meta_info": meta}, {"routed_experts": None}, {"routed_experts": SHORT}]
    return {"choices": choices, "sglext": {"routed_experts": BLOB}, **more}


async def test_a_reply_is_read_without_its_blobs():
    store = SlowStore()
    reply = await read(json.dumps(engine_reply()).encode(), store)
    assert reply.value == {"choices": [{"meta_info": {"id": "x"}}, {}, {}], "sglext": {}}
    assert reply.is_strict
    assert reply.strict is reply.raw
    assert [blob in store.blobs for _, blob in reply.replay] == [True, True, False, True]
    assert replay_of(reply) == [
        ("routed_experts", BLOB.encode()),
        ("indexer_topk", OTHER.encode()),
        ("routed_experts", SHORT.encode()),
        ("routed_experts", BLOB.encode()),
    ]


async def test_reading_a_usual_reply_reads_no_blob_back():
    store = SlowStore(is_on_disk=True)
    intake = Intake(store, "s", IngestBudget(1 << 30))
    intake.feed(memoryview(json.dumps(engine_reply()).encode()))
    await read_taken(await intake.finish(), IdsText())
    assert store.reads == 0


async def test_the_stored_blobs_stand_in_the_text():
    store = SlowStore()
    reply = await read(json.dumps(engine_reply()).encode(), store)
    assert reply.raw.blobs == store.blobs
    assert sum(len(part) for part in reply.raw.parts if isinstance(part, bytes)) < 300


async def test_numbers_that_are_not_finite_are_null_in_the_strict_text():
    store = SlowStore()
    reply = await read(json.dumps(engine_reply(x=float("nan"))).encode(), store)
    assert not reply.is_strict
    assert json.loads(joined(reply.strict)) == engine_reply(x=None)
    assert reply.strict.blobs == reply.raw.blobs == store.blobs


REPEATED = f'{{"routed_experts":"{BLOB}","routed_experts":"{OTHER}","x":[1e999]}}'


@pytest.mark.parametrize(
    ("body", "value", "replay"),
    [
        (REPEATED.replace("1e999", "1"), {"x": [1]}, [OTHER]),
        (f'{{"a":{{"routed_experts":"{BLOB}"}},"a":1}}', {"a": 1}, []),
        (f'{{"a":[0,{{"routed_experts":"{BLOB}"}}]}}', {"a": [0, {"routed_experts": BLOB}]}, []),
        (f'{{"routed_experts":"{BLOB}-","x":2}}', {"x": 2}, [BLOB + "-"]),
        (f'{{"routed_experts":"{BLOB}\\"","x":2}}', {"x": 2}, [BLOB + '"']),
        (f'{{"routed\\u005fexperts":"{BLOB}","x":2}}', {"x": 2}, [BLOB]),
        (f'{{"routed_experts":"{BLOB}\\ud800","x":2}}', {"x": 2}, [BLOB + "\ud800"]),
    ],
)
async def test_a_reply_that_is_not_as_it_seems_is_parsed_as_a_whole(
    body: str, value: Json, replay: list[str]
):
    reply = await read(body.encode())
    assert reply.value == value
    wanted = [("routed_experts", text.encode("utf-8", "surrogatepass")) for text in replay]
    assert replay_of(reply) == wanted


async def test_the_strict_text_of_such_a_reply_is_written_from_the_whole():
    reply = await read(REPEATED.encode())
    assert not reply.is_strict
    assert json.loads(joined(reply.strict)) == {"routed_experts": OTHER, "x": [None]}
    assert len(reply.raw.blobs) == 2


@pytest.mark.parametrize("end", ["", '"', '"]', "-", '",}'])
async def test_what_is_no_json_is_refused(end: str):
    with pytest.raises(ValueError):  # noqa: PT011 - of either parser
        await read(f'{{"routed_experts":"{BLOB}{end}'.encode())


def test_a_placeholder_must_be_once_the_text_of_its_own_field():
    blob = SlowBlob(SlowStore(), b"x")
    taken = TakenBlob(placeholder="place", field="routed_experts", blob=blob)
    assert match_placeholders([("routed_experts", "place")], [taken]) == [("routed_experts", blob)]
    for fields in (
        [],
        [("indexer_topk", "place")],
        [("routed_experts", "places")],
        [("indexer_topk", "place"), ("routed_experts", "place")],
    ):
        assert match_placeholders(fields, [taken]) is None


def test_equal_texts_of_one_placeholder_are_not_both_the_blob():
    taken = TakenBlob(placeholder="p", field="routed_experts", blob=SlowBlob(SlowStore(), b"x"))
    fields = [("routed_experts", "p"), ("routed_experts", "p")]
    assert match_placeholders(fields, [taken]) is None
    assert match_placeholders(fields, []) is not None
