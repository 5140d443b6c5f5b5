"""What routing costs a tool call: calls of live episodes behind a router and on one shard alone.

The example environment stands twice, as a lone shard and as two shards behind a router, and so do
the plain requests of `benchmarks.routing`: their ratio of the same rounds is what the ratio of tool
calls is held up to. Every run has episodes of its own, held open by an agent, and ends with a look
at their counters: each call that was answered ran once.

Spec: docs/benchmark.md#tools
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import contestants as stage
from benchmarks.contestants import Contestant, open_group
from benchmarks.figures import Sample, Samples, Spread, Verdict, Workload, rate, ratio_of, spread_of
from benchmarks.load import CONNECTIONS, LoadError, Run, run_wrk
from benchmarks.report import (
    conditions_text,
    samples_json,
    small_table,
    spread_text,
    verdict_table,
)
from benchmarks.rounds import Bout, Rounds, describe_machine, sample_of
from tests.support.agents import Agents, Played, open_agents

TOOL_APP: Final = "examples.counter_env:CounterEnvironment"
TOOL: Final = "tool calls"
PLAIN: Final = "plain requests"
SMALL: Final = (Workload.KEPT, Workload.NEW)
_EPISODES: Final = 61  # more than wrk's connections, and prime
_TURNS: Final = (stage.LONE, stage.MIXED)


def name_of(what: str, server: str) -> str:
    """A contestant's name: what is asked, and of whom."""
    return f"{what}, {server}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Everything that was measured.

    Attributes:
        samples: Of all rounds, by workload and `name_of`.
        machine: One line about it.
        loads: Load average (1 minute) before each round and after the last.
        strangers: Of each round, how many cores others than servers and load kept busy.
        episodes: Of the last run of each tool server, by shard.
    """

    samples: Samples
    machine: str
    loads: Sequence[float]
    strangers: Sequence[float]
    episodes: Mapping[str, Mapping[str, int]]

    def ratio(self, what: str, workload: Workload) -> Spread:
        """Speed of two shards behind a router over that of a lone one, round by round."""
        beside = name_of(what, stage.LONE)
        return ratio_of(self.samples, workload, name_of(what, stage.MIXED), rate, beside)

    def verdicts(self) -> list[Verdict]:
        """Whether a router costs a tool call no more than it costs a plain request."""
        return [
            Verdict(
                what=f"{workload.value}: tool calls at {stage.MIXED}, x {stage.LONE}",
                limit=round(self.ratio(PLAIN, workload).median, 3),
                at_least=True,
                got=self.ratio(TOOL, workload),
            )
            for workload in SMALL
        ]

    def to_json(self) -> dict[str, object]:
        """Every sample and verdict."""
        return {
            "machine": self.machine,
            "loads": list(self.loads),
            "strangers": list(self.strangers),
            "episodes": {server: dict(shards) for server, shards in self.episodes.items()},
            "samples": samples_json(self.samples),
            "verdicts": [verdict.to_json() for verdict in self.verdicts()],
        }

    def text(self) -> str:
        """The tables."""
        blocks = [
            f"{conditions_text(self.machine, self.loads, self.strangers)}\n{self._load_text()}",
            *(self._table(what, workload) for workload in SMALL for what in (TOOL, PLAIN)),
            verdict_table(self.verdicts()),
        ]
        return "\n\n".join(blocks)

    def _load_text(self) -> str:
        cores = [sample.load_cores for samples in self.samples.values() for sample in samples]
        return f"cores busy with the load    {spread_text(spread_of(cores), '.2f')}"

    def _table(self, what: str, workload: Workload) -> str:
        servers = [name_of(what, server) for server in _TURNS]
        title = f"{workload.value}: {what}"
        return small_table(title, self.samples, workload, servers, servers[0])


def measure_calls(folder: Path, rounds: int, run_s: int) -> Calls:
    """Start all servers, load them round by round, stop them.

    Args:
        folder: Empty and with a short path, for runtime folders and logs.
        rounds: How often every server is loaded in each way.
        run_s: Length of one run, in whole seconds.

    Raises:
        LoadError: A server answered with an error or not at all, or a call did not run once.
        GroupError: A group did not start.
    """
    return asyncio.run(_measure(folder, rounds, run_s))


async def _measure(folder: Path, rounds: int, run_s: int) -> Calls:
    with _open_servers(folder) as (tools, plains):
        async with open_agents() as agents:
            agents.client.timeout = None  # an episode lasts as long as its run of load
            players = [_Player(agents, server) for server in tools]
            bouts = [
                Bout(workload=workload, contestant=contestant, load=load)
                for workload in SMALL
                for contestant, load in [
                    *((player.contestant, partial(player.load, workload)) for player in players),
                    *((plain, partial(_load_plain, plain, workload)) for plain in plains),
                ]
            ]
            done = Rounds(bouts)
            await asyncio.to_thread(done.run, rounds, run_s)
    return Calls(
        samples=done.samples,
        machine=describe_machine(),
        loads=done.loads,
        strangers=done.strangers,
        episodes={player.contestant.name: player.shards for player in players},
    )


@contextlib.contextmanager
def _open_servers(folder: Path) -> Iterator[tuple[list[Contestant], list[Contestant]]]:
    with contextlib.ExitStack() as stack:
        made = [
            [
                stack.enter_context(
                    open_group(
                        name_of(what, server),
                        folder / f"{what[0]}{shards}",
                        shards=shards,
                        app=app,
                    )
                )
                for server, shards in zip(_TURNS, (1, 2), strict=True)
            ]
            for what, app in ((TOOL, TOOL_APP), (PLAIN, stage.APP))
        ]
        yield made[0], made[1]


def _load_plain(contestant: Contestant, workload: Workload, run_s: int) -> Sample:
    return sample_of(contestant, lambda: _run_wrk(contestant, workload, run_s, ()))


def _run_wrk(
    contestant: Contestant, workload: Workload, run_s: int, named_by: Sequence[str]
) -> Run:
    try:
        return run_wrk(
            contestant.address,
            duration_s=run_s,
            close=workload is Workload.NEW,
            named_by=named_by,
        )
    except LoadError as error:
        raise LoadError(f"{contestant.name}, {workload.value}: {error}") from error


def check_ran(server: str, answered: int, ran: int) -> None:
    """Compare the calls that ran with those that were answered; wrk leaves some behind.

    Args:
        server: Its name.
        answered: Calls, as the load counted them.
        ran: Calls, as the episodes' counters tell.

    Raises:
        LoadError: A call did not run, or one ran twice.
    """
    if not answered <= ran <= answered + CONNECTIONS:
        raise LoadError(f"{server}: {answered} calls answered, {ran} ran")


class _Player:
    """Holds episodes open at one server while their tools are called.

    Attributes:
        contestant: The server.
        shards: How many episodes of the last run each shard had.
    """

    def __init__(self, agents: Agents, contestant: Contestant) -> None:
        self.contestant = contestant
        self.shards: Mapping[str, int] = {}
        self._agents = agents
        self._loop = asyncio.get_running_loop()
        self._runs = 0

    def load(self, workload: Workload, run_s: int) -> Sample:
        """One run, in a thread that is not the agents'."""
        running = self._run(workload, run_s)
        return asyncio.run_coroutine_threadsafe(running, self._loop).result()

    async def _run(self, workload: Workload, run_s: int) -> Sample:
        async with self._episodes() as episodes:
            replies = await asyncio.gather(*[episode.add(0) for episode in episodes])
            counts = Counter(reply["shard"] for reply in replies)
            self.shards = {f"shard {shard}": count for shard, count in sorted(counts.items())}
            if len(counts) != sum(name.startswith("shard") for name in self.contestant.pids):
                raise LoadError(f"{self.contestant.name}: all episodes are at {self.shards}")
            (header,) = episodes[0].headers
            named_by = [header, *(episode.headers[header] for episode in episodes)]
            load = partial(_run_wrk, self.contestant, workload, run_s, named_by)
            sample = await asyncio.to_thread(sample_of, self.contestant, load)
            results = await asyncio.gather(*[episode.end() for episode in episodes])
        ran = sum(result["total"] for result in results)
        check_ran(self.contestant.name, round(sample.run.count), ran)
        return sample

    @contextlib.asynccontextmanager
    async def _episodes(self) -> AsyncIterator[list[Played]]:
        self._runs += 1
        host, port = self.contestant.address
        begun = [
            self._agents.begin(f"http://{host}:{port}", f"{self.contestant.name}-{self._runs}-{n}")
            for n in range(_EPISODES)
        ]
        episodes = await asyncio.gather(*begun)
        try:
            yield episodes
        finally:
            for episode in episodes:
                episode.is_over.set()
