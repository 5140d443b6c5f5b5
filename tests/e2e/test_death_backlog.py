"""What a shard said before its death counts, however much of it the router has not read yet."""

from __future__ import annotations

import contextlib

from tests.support.apps import pattern_of
from tests.support.ids import ids_of_shard
from tests.support.model import Policy
from tests.support.model_app import HELD_BYTES
from tests.support.model_arena import open_arena, wait_for
from tests.support.processes import is_alive
from tests.support.raw import open_raw, request_bytes
from tests.support.topology import Topology
from tests.support.waiting import wait_until

COUNT = 100  # more than the router reads of a channel in one turn
SHARDS = 3
DEAD, OTHER = 0, 1


async def test_exchanges_that_the_dead_shard_gave_back_are_not_cut():
    dead, other = ids_of_shard(DEAD, SHARDS)[0], ids_of_shard(OTHER, SHARDS)[0]
    seeds = [f"b{number}" for number in range(COUNT)]
    with open_arena(Topology(name="router+3", shards=SHARDS), Policy.CONTINUE) as arena:
        await arena.prepare(kills=True)
        async with contextlib.AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(open_raw(arena.group.address)) for _ in seeds
            ]
            for client, seed in zip(clients, seeds, strict=True):
                held = request_bytes("POST", f"/sessions/{dead}/hold?id={seed}", body=b"x")
                behind = request_bytes("GET", f"/sessions/{other}/echo?id={seed}.next&out=9")
                await client.send(held + behind)

            async def all_run() -> bool:
                return len((await arena.journal("b")).runs) == COUNT

            await wait_for(all_run, "all exchanges run")
            arena.stop("router")
            await arena.open_gates(seeds)
            for client, seed in zip(clients, seeds, strict=True):
                assert (await client.read_reply()).body == pattern_of(seed, HELD_BYTES)
            await arena.journal("b")  # so the shard's loop has turned: its words are on their way
            arena.kill(DEAD)
            pid = arena.group.pids[f"shard {DEAD}"]
            wait_until(lambda: not is_alive(pid), "the shard is dead")
            arena.go_on("router")
            for client, seed in zip(clients, seeds, strict=True):
                assert (await client.read_reply()).body == pattern_of(f"{seed}.next", 9)
