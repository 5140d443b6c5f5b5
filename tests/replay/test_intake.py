import asyncio
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from sessions.errors.group import ReplayStoreError
from sessions.errors.unseen import LocalProtocolError
from sessions.replay.budget import IngestBudget
from sessions.replay.file_store import open_replay_store
from sessions.replay.intake import MAX_BLOBS, Intake
from sessions.replay.taken import InlineBlob, TakenText
from tests.support.slow_store import SlowStore

BLOB = "QUJD" * 1000
LONGER = BLOB + "REVG" * 1000
META = {"choices": [{"meta_info": {"routed_experts": BLOB, "id": "x"}}], "usage": 1}


def text_of(*blobs: str) -> bytes:
    return json.dumps([{"routed_experts": blob} for blob in blobs]).encode()


def intake_of(store: SlowStore, budget: IngestBudget | None = None) -> Intake:
    return Intake(store, "s", budget or IngestBudget(1 << 30))


async def take(store: SlowStore, body: bytes, *, size: int = 1 << 20) -> TakenText:
    intake = intake_of(store)
    await feed(intake, body, size=size)
    taken = await intake.finish()
    intake.abort()
    assert store.writers == []
    assert [blob for blob in store.all_blobs if blob.pins] == []
    assert taken.restore() == body
    return taken


async def feed(intake: Intake, body: bytes, *, size: int = 1 << 20) -> None:
    for start in range(0, len(body), size):
        if not intake.feed(memoryview(body)[start : start + size]):
            await intake.wait_room()


def texts_of(taken: TakenText) -> list[tuple[str, bytes]]:
    return [(blob.field, blob.blob.read(0, blob.blob.size_bytes)) for blob in taken.blobs]


@pytest.mark.parametrize("size", [1, 7, 255, 4096, 1 << 20])
async def test_a_blob_goes_to_the_store_and_a_placeholder_stands_for_it(size: int):
    store = SlowStore()
    taken = await take(store, json.dumps(META).encode(), size=size)
    assert texts_of(taken) == [("routed_experts", BLOB.encode())]
    (blob,) = taken.blobs
    stands = {"choices": [{"meta_info": {"routed_experts": blob.placeholder, "id": "x"}}]}
    assert json.loads(taken.text) == stands | {"usage": 1}
    assert len(taken.text) < 200
    assert store.blobs == [blob.blob]


async def test_a_text_without_blobs_comes_as_it_is():
    store = SlowStore()
    for body in (b"", b"{}", b"\xff\x00 no JSON", b'{"routed_experts":null}', text_of("short")):
        assert await take(store, body, size=3) == TakenText(text=body, blobs=())
    assert store.blobs == []


async def test_nobody_can_guess_a_placeholder():
    seen = {(await take(SlowStore(), text_of(BLOB))).blobs[0].placeholder for _ in range(20)}
    assert len(seen) == 20
    assert all(len(placeholder) >= 16 + 32 for placeholder in seen)


async def test_what_an_earlier_turn_has_is_not_stored_again():
    store = SlowStore()
    await take(store, text_of(BLOB))
    await take(store, text_of(LONGER))
    assert store.new_bytes == len(LONGER)


@pytest.mark.parametrize("size", [1, 999, 1 << 20])
async def test_only_what_is_new_is_checked_wherever_it_begins(size: int):
    for common in range(4000, 4008):
        store = SlowStore()
        store.latest["s", "routed_experts"] = b"A" * 4000 + b"QUJDREVG"[: common - 4000] + b"-"
        body = text_of("A" * 4000 + "QUJDREVG" * 100)
        assert len((await take(store, body, size=size)).blobs) == 1
        assert store.new_bytes == 4800 - common


@pytest.mark.parametrize("size", [1 << 20, 5000, 999])
async def test_a_second_copy_in_one_reply_is_stored_once(size: int):
    store = SlowStore()
    taken = await take(store, text_of(BLOB, BLOB, LONGER), size=size)
    assert [text for _, text in texts_of(taken)] == [BLOB.encode()] * 2 + [LONGER.encode()]
    assert store.new_bytes == len(LONGER)


async def test_a_copy_makes_the_engine_wait_and_another_field_does_not():
    intake = intake_of(SlowStore())
    assert intake.feed(memoryview(text_of(BLOB)))
    assert intake.feed(memoryview(b',{"indexer_topk":"' + BLOB.encode() + b'"}'))
    assert not intake.feed(memoryview(b"," + text_of(BLOB)))
    await intake.wait_room()
    assert intake.feed(memoryview(b"]"))
    assert len((await intake.finish()).blobs) == 3


async def test_both_fields_are_kept_apart():
    store = SlowStore()
    body = json.dumps({"routed_experts": BLOB, "indexer_topk": LONGER}).encode()
    fields = [("routed_experts", BLOB.encode()), ("indexer_topk", LONGER.encode())]
    assert texts_of(await take(store, body)) == fields


async def test_the_first_blob_of_a_field_is_compared_with_that_of_the_turn_before():
    store = SlowStore()
    before = {"routed_experts": InlineBlob(b"one"), "unknown": InlineBlob(b"other")}
    intake = Intake(store, "s", IngestBudget(1 << 30), before)
    body = json.dumps([{"routed_experts": BLOB, "indexer_topk": BLOB}, {"routed_experts": BLOB}])
    await feed(intake, body.encode())
    await intake.finish()
    intake.abort()
    # A second copy is compared with the first one.
    assert store.begun == [
        ("routed_experts", before["routed_experts"]),
        ("indexer_topk", None),
        ("routed_experts", None),
    ]


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
async def test_a_slow_disk_is_waited_for_and_nothing_is_lost(size: int):
    store = SlowStore(takes=900, is_on_disk=True)
    taken = await take(store, json.dumps(META).encode(), size=size)
    assert texts_of(taken) == [("routed_experts", BLOB.encode())]
    assert store.waits >= len(BLOB) // 900


async def test_bytes_that_come_although_there_was_no_room_are_kept():
    store = SlowStore(takes=10)
    intake = intake_of(store)
    body = text_of(BLOB)
    for start in range(0, len(body), 100):
        intake.feed(memoryview(body)[start : start + 100])
    taken = await intake.finish()
    assert taken.restore() == body
    assert len(taken.blobs) == 1


def bad(*parts: str) -> bytes:
    return "".join(('{"routed_experts":"', BLOB, *parts)).encode()


UNUSUAL = [
    bad('\\u0041"}'),
    bad('\\"","x":1}'),
    bad('\\\\"}'),
    bad('-AAA"}'),
    bad('é"}'),
    bad('A"}'),
    bad('AA=="', ',"indexer_topk":"', BLOB, '==AA"}'),
    bad('QQ==QUJD"}'),
    bad(""),
    bad("QU"),
]


@pytest.mark.parametrize("body", UNUSUAL)
@pytest.mark.parametrize("is_on_disk", [False, True])
async def test_an_unusual_reply_comes_whole_and_leaves_nothing(body: bytes, *, is_on_disk: bool):
    for size in (1, 100, 1 << 20):
        store = SlowStore(is_on_disk=is_on_disk)
        assert await take(store, body, size=size) == TakenText(text=body, blobs=())
        assert store.blobs == []
        assert (store.reads > 0) == is_on_disk


async def test_good_blobs_before_a_bad_one_are_put_back_too():
    store = SlowStore()
    body = text_of(BLOB, BLOB, BLOB + "-AAA", BLOB)
    assert await take(store, body) == TakenText(text=body, blobs=())
    assert store.blobs == []


async def test_nothing_is_shared_with_a_bad_blob():
    """What equals an earlier blob is not checked again, so that must have been good."""
    store = SlowStore()
    body = text_of(BLOB + "-AAA", BLOB + "-AAA")
    await take(store, body)
    assert store.latest == {}
    assert await take(store, body) == TakenText(text=body, blobs=())


async def test_an_aborted_reply_leaves_nothing():
    store = SlowStore()
    budget = IngestBudget(1 << 30)
    intake = intake_of(store, budget)
    await feed(intake, text_of(BLOB, LONGER)[:-10])
    assert (len(store.blobs), len(store.writers)) == (1, 1)
    assert budget.held_bytes > len(LONGER)
    intake.abort()
    intake.abort()
    assert (store.blobs, store.writers, budget.held_bytes) == ([], [], 0)
    assert [blob.pins for blob in store.all_blobs] == [0]
    with pytest.raises(LocalProtocolError):
        intake.feed(memoryview(b"x"))


async def test_a_finished_reply_is_kept_and_no_longer_held_when_it_is_aborted():
    store = SlowStore()
    intake = intake_of(store)
    await feed(intake, text_of(BLOB, BLOB))
    await intake.finish()
    assert [blob.pins for blob in store.all_blobs] == [1, 1]
    intake.abort()
    intake.abort()
    assert [blob.pins for blob in store.all_blobs] == [0, 0]
    assert len(store.blobs) == 2


async def test_a_broken_disk_fails_the_reply_and_leaves_nothing():
    async def waits(store: SlowStore, intake: Intake) -> None:
        assert not intake.feed(memoryview(text_of(BLOB)))
        store.is_broken = True
        await intake.wait_room()

    async def ends(store: SlowStore, intake: Intake) -> None:
        store.takes = 1 << 20
        assert intake.feed(memoryview(text_of(BLOB)))
        store.is_broken = True
        await intake.finish()

    async def copies(store: SlowStore, intake: Intake) -> None:
        store.takes = 1 << 20
        assert not intake.feed(memoryview(text_of(BLOB, BLOB)))
        store.is_broken = True
        await intake.wait_room()

    for way in (waits, ends, copies):
        store, budget = SlowStore(takes=10), IngestBudget(1 << 30)
        intake = intake_of(store, budget)
        with pytest.raises(ReplayStoreError):
            await way(store, intake)
        intake.abort()
        assert (store.blobs, store.writers, budget.held_bytes) == ([], [], 0)


async def test_the_budget_is_charged_with_text_and_new_bytes_and_given_back():
    store, budget = SlowStore(), IngestBudget(1 << 30)
    await take(store, text_of(BLOB))
    intake = intake_of(store, budget)
    body = text_of(LONGER)
    await feed(intake, body)
    assert len(LONGER) - len(BLOB) <= budget.held_bytes < len(LONGER) - len(BLOB) + 200
    await intake.finish()
    assert budget.held_bytes == 0


async def test_a_reply_over_the_budget_waits_until_others_end():
    store, budget = SlowStore(), IngestBudget(100_000)
    first, second = intake_of(store, budget), intake_of(store, budget)
    assert first.feed(memoryview(b" " * 90_000))
    assert not second.feed(memoryview(b" " * 90_000))
    waiting = asyncio.ensure_future(second.wait_room())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert first.feed(memoryview(b" " * 90_000)), "the oldest is always let on"
    await first.finish()
    await waiting
    assert second.feed(memoryview(b" "))


async def test_small_replies_never_wait():
    store, budget = SlowStore(), IngestBudget(10)
    intake_of(store, budget).feed(memoryview(b" " * 100_000))
    assert intake_of(store, budget).feed(memoryview(b" " * 60_000))


async def test_more_blobs_than_any_reply_has_stay_text():
    store = SlowStore()
    body = text_of(*iterate("QUJD" * 64, MAX_BLOBS + 5))
    taken = await take(store, body)
    assert len(taken.blobs) == MAX_BLOBS


@pytest.mark.parametrize("body", [text_of(BLOB, BLOB, LONGER), text_of(BLOB, LONGER + "-AAA")])
@pytest.mark.parametrize("place", ["memory", "spool"])
async def test_a_session_may_go_while_its_reply_arrives(place: str, body: bytes, tmp_path: Path):
    store = open_replay_store(str(tmp_path) if place == "spool" else "")
    begun = store.usage()
    for cut in (10, 3000, 6000, 13_000, len(body)):
        intake = Intake(store, "s", IngestBudget(1 << 30))
        await feed(intake, body[:cut], size=999)
        store.drop_session("s")
        await feed(intake, body[cut:], size=999)
        taken = await intake.finish()
        assert taken.restore() == body
        intake.abort()
        store.discard("s", [blob.blob for blob in taken.blobs])
        assert store.usage() == begun
    store.close()


def iterate(text: str, count: int) -> Iterable[str]:
    return (text for _ in range(count))
