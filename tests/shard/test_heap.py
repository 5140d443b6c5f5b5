import ctypes

from sessions.shard.heap import Heap, trim_heap


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def heap_of() -> tuple[Heap, Clock, list[str]]:
    clock, trims = Clock(), []
    return Heap(lambda: trims.append("x"), clock), clock, trims


async def test_it_is_trimmed_once_after_sessions_ended_and_not_more_often_than_that():
    heap, clock, trims = heap_of()
    heap.look(3)
    await heap.close()
    assert trims == []  # too soon
    clock.now += 10
    heap.look(3)
    await heap.close()
    assert len(trims) == 1
    clock.now += 60
    heap.look(3)
    await heap.close()
    assert len(trims) == 1  # nothing ended since
    heap.look(4)
    await heap.close()
    assert len(trims) == 2
    clock.now += 9
    heap.look(5)
    await heap.close()
    assert len(trims) == 2


async def test_nothing_is_trimmed_while_no_session_ends():
    heap, clock, trims = heap_of()
    clock.now += 1000
    heap.look(0)
    await heap.close()
    assert trims == []


def test_holes_of_the_heap_are_given_back():
    held = [ctypes.create_string_buffer(65536) for _ in range(2000)]
    for buffer in held:
        ctypes.memset(buffer, 1, 65536)
    keeps = held[::50]
    before = resident_kib()
    del held, buffer
    trim_heap()
    assert before - resident_kib() > 100_000  # of 125 MiB, with something left in between
    assert len(keeps) == 40


def resident_kib() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
