"""The last words, with stand-in processes as shards: the cause, the kills, the order, the wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sessions.errors.group import GroupDyingError
from sessions.lending.cells import CellState
from sessions.lending.front import Front
from sessions.lending.messages import Keep, Kind, Message
from sessions.lending.place import Place
from sessions.router import last_words
from sessions.router.dispatch import Dispatch, dying_error
from sessions.router.last_words import speak_last_words
from tests.support.fake_links import FakeConnection, channel_of, head_of, link_of
from tests.support.members import group_of

SHARDS = 3
HEAD = head_of()


class Scene:
    """A group whose shards are processes that only sleep; shard 0 is the one that died."""

    def __init__(self, tmp_path: Path, opened: contextlib.ExitStack) -> None:
        self.group = group_of(tmp_path, shards=SHARDS)
        self.dispatch = Dispatch(SHARDS)
        self.front = Front(self.group, self.dispatch)
        self.processes: list[subprocess.Popen[bytes]] = []
        for index in range(SHARDS):
            process = subprocess.Popen(["sleep", "60"])
            self.processes.append(process)
            opened.callback(process.wait)
            opened.callback(process.kill)
            pidfd = os.pidfd_open(process.pid)
            opened.callback(os.close, pidfd)
            self.dispatch.add(link_of(index, pid=process.pid, pidfd=pidfd))
        self.dead = self.dispatch.links[0]
        self.processes[0].kill()
        self.processes[0].wait()

    def lent(self, number: int, shard: int) -> FakeConnection:
        """A connection that is lent to a shard."""
        connection = FakeConnection(number)
        self.front.connections.add(connection.real)
        self.dispatch.lend(connection.real, Place(shard=shard), HEAD, b"payload")
        connection.calls.clear()
        return connection

    async def speak(self) -> None:
        """The last words, with connections that are gone as soon as they were judged."""
        speaking = asyncio.create_task(
            speak_last_words(self.group, self.front, self.dispatch, self.dead)
        )
        while not speaking.done():
            await asyncio.sleep(0)
            if all(link.channel.was_read for link in self.dispatch.links.values()):  # type: ignore[attr-defined]
                self.front.connections.clear()
        await speaking


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with contextlib.ExitStack() as opened:
        yield Scene(tmp_path, opened)


async def test_the_cause_of_the_board_is_told(scene: Scene) -> None:
    connection = scene.lent(0, 0)
    scene.group.board.set_cause("shard 0 (pid 1) died of signal 9")
    await scene.speak()
    assert scene.dispatch.cause == "shard 0 (pid 1) died of signal 9"
    ((name, error, head),) = connection.calls
    assert (name, head) == ("answer_dead", HEAD)
    assert isinstance(error, GroupDyingError)
    assert "died of signal 9" in error.message


async def test_a_cause_that_comes_a_blink_later_is_told(scene: Scene) -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(0.005, scene.group.board.set_cause, "shard 0 exited with 3")
    await scene.speak()
    assert scene.dispatch.cause == "shard 0 exited with 3"


async def test_without_a_cause_the_router_names_the_shard(scene: Scene) -> None:
    await scene.speak()
    assert scene.dispatch.cause == f"shard 0 (pid {scene.dead.pid}) died"


async def test_new_requests_are_refused_from_the_first_moment(scene: Scene) -> None:
    speaking = asyncio.create_task(scene.speak())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(GroupDyingError):
        scene.dispatch.choose(None)
    await speaking


async def test_every_other_shard_is_dead_before_anybody_is_judged(scene: Scene) -> None:
    """A shard that lived could begin a reply after its client was answered here."""

    class Watching(FakeConnection):
        def answer_dead(self, error: object, head: object) -> None:
            assert all(process.poll() == -signal.SIGKILL for process in scene.processes)
            super().answer_dead(error, head)  # type: ignore[arg-type]

    connections = [Watching(number) for number in range(SHARDS)]
    for shard, connection in enumerate(connections):
        scene.front.connections.add(connection.real)
        scene.dispatch.lend(connection.real, Place(shard=shard), HEAD, b"payload")
    await scene.speak()
    assert [connection.names[-1] for connection in connections] == ["answer_dead"] * SHARDS


async def test_every_connection_is_asked_for_a_head_that_has_begun(scene: Scene) -> None:
    connection = FakeConnection(0)
    scene.front.connections.add(connection.real)
    await scene.speak()
    (error,) = connection.refused
    assert isinstance(error, GroupDyingError)
    assert error.message == dying_error(scene.dispatch.cause).message


async def test_exchanges_of_every_shard_are_judged_by_their_cells(scene: Scene) -> None:
    awaiting, replying, complete = (scene.lent(number, number) for number in range(SHARDS))
    scene.group.cells.mark(1, replying.slot.generation, CellState.REPLYING)
    scene.group.cells.mark(2, complete.slot.generation, CellState.COMPLETE)
    await scene.speak()
    assert [c.names for c in (awaiting, replying, complete)] == [["answer_dead"], ["cut"], ["end"]]


@pytest.mark.parametrize("shard", range(SHARDS))
async def test_what_a_shard_gave_back_before_its_death_counts(scene: Scene, shard: int) -> None:
    connection = scene.lent(0, shard)
    link = scene.dispatch.links[shard]
    channel = channel_of(link)
    slot = connection.slot
    channel.to_read = [Message(Kind.BACK, Keep.KEPT, slot.number, 0, slot.generation, b"left")]
    channel.deliver = lambda message: scene.dispatch.on_message(link, message)
    await scene.speak()
    assert connection.names == ["take_back"]


async def test_the_router_waits_until_its_answers_have_left(scene: Scene) -> None:
    scene.lent(0, 0)
    scene.group.board.set_cause("it died")
    waits: list[bool] = []

    async def wait(condition: Callable[[], object], **_limits: float) -> bool:
        waits.append(bool(condition()))
        return True

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(last_words, "wait_until", wait)
        await speak_last_words(scene.group, scene.front, scene.dispatch, scene.dead)
        assert waits == [True, False], "for the cause, and for connections to be gone"
        scene.front.connections.clear()
        await speak_last_words(scene.group, scene.front, scene.dispatch, scene.dead)
        assert waits[2:] == [True, True]


async def test_a_shard_that_died_meanwhile_is_no_error(scene: Scene) -> None:
    scene.processes[1].kill()
    scene.processes[1].wait()
    await scene.speak()
    assert scene.processes[2].poll() is not None


def test_shards_that_do_not_die_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, killed = [100.0], list[int]()

    class SlowPoll:
        """What nothing ever comes to: it takes the whole time that it is given."""

        def register(self, pidfd: int, _events: int) -> None:
            assert killed == [7, 8], "all are killed before any is waited for"

        def poll(self, timeout_ms: float) -> None:
            clock[0] += timeout_ms / 1000

    monkeypatch.setattr(select, "poll", SlowPoll)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda pidfd, _number: killed.append(pidfd))
    last_words.kill_shards([link_of(0, pidfd=7), link_of(1, pidfd=8)])
    assert clock[0] == pytest.approx(100.0 + last_words.DEATH_WAIT_S)
