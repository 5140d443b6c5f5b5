"""Many clients at once on real groups, each on connections of its own.

C-T49 of docs/cases.md, and the crowds of its section migration.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from tests.support.chats import CHAT, RawSession, chat_body
from tests.support.group import RunningGroup, open_groups
from tests.support.replies import Reply

JSON: Final = (("Content-Type", "application/json"),)


@pytest.fixture(scope="module", params=[1, 3], ids=["lone shard", "three shards"])
def group(request: pytest.FixtureRequest) -> Iterator[RunningGroup]:
    with open_groups() as groups:
        yield groups.start(shards=request.param, env={"SESSIONS_ENGINE_URL": "sim:"})


def count_of(reply: Reply, name: str) -> int:
    return sum(1 for found, _ in reply.headers if found.lower() == name)


def life(group: RunningGroup) -> list[int]:
    """The statuses of a session's life: chat, delete, and everything after it."""
    session = RawSession(group.address)
    replies = [
        session.ask("POST", CHAT, JSON, chat_body()),
        session.ask("DELETE"),
        session.ask("DELETE"),
        session.ask("POST", CHAT, JSON, chat_body()),
        session.ask("GET"),
        session.ask("POST", "/samples"),
    ]
    for reply in replies:
        assert (count_of(reply, "server"), count_of(reply, "date")) == (1, 1)
    assert (replies[1].body, replies[1].header("content-type")) == (b"", None)
    return [reply.status for reply in replies]


def test_sessions_live_and_end_side_by_side(group: RunningGroup):
    with ThreadPoolExecutor(8) as threads:
        lives = list(threads.map(lambda _: life(group), range(20)))
    assert lives == [[200, 204, 410, 410, 410, 410]] * 20


def test_of_eight_chats_of_one_session_one_is_recorded_while_others_read(group: RunningGroup):
    session = RawSession(group.address)
    bodies = [chat_body(seed=number, sim={"content": "ok"}) for number in range(8)]
    with ThreadPoolExecutor(10) as threads:
        reads = [threads.submit(session.ask, "GET") for _ in range(2)]
        chats = list(threads.map(lambda body: session.ask("POST", CHAT, JSON, body), bodies))
        statuses = [read.result().status for read in reads]
    assert statuses == [200, 200]
    assert [chat.status for chat in chats] == [200] * 8
    # Who came after a commit sampled that turn anew; the last one of them is recorded.
    assert any(chat.header("x-turn-recorded") is None for chat in chats)
    assert len(json.loads(session.ask("GET").body)["records"]) == 1


def test_a_session_that_is_deleted_during_its_chats_answers_them_and_is_gone(group: RunningGroup):
    session = RawSession(group.address)
    bodies = [chat_body(seed=number, sim={"content": "ok", "delay_s": 2}) for number in range(8)]
    with ThreadPoolExecutor(10) as threads:
        chats = [threads.submit(session.ask, "POST", CHAT, JSON, body) for body in bodies]
        deletes = [threads.submit(session.ask, "DELETE") for _ in range(2)]
        ends = sorted(delete.result().status for delete in deletes)
        replies = [chat.result() for chat in chats]
    assert ends == [204, 410]
    assert {reply.status for reply in replies} <= {200, 410}
    assert all(
        reply.header("x-turn-recorded") == "false" for reply in replies if reply.status == 200
    )
    assert session.ask("GET").status == 410
