"""What the samples of a large session cost, beside the usual way to make them.

`python -m benchmarks.samples` chats with a lone shard on the simulated engine until a session's
records have a given size, fetches its samples in rounds, and meanwhile asks the same shard small
questions. The usual way is measured in the same rounds, in this process, on the same records
already parsed: decode every turn's experts, copy and merge turn by turn, save the tensors. Small by
default; the documented figures are those of `--mib 450 --rounds 5`.

Spec: docs/benchmark.md#samples
"""

from __future__ import annotations

import argparse
import base64
import copy
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors.numpy

from benchmarks.figures import Verdict, spread_of
from benchmarks.load import LoadError
from benchmarks.shape import text_of_tokens
from benchmarks.stand import Probing, open_engines, open_replay_group
from benchmarks.usage import read_cpu_s
from sessions.client.answers import Answer
from sessions.client.samples import Sample, parse_samples
from tests.support.raw import RawConnection, request_bytes

_MIB: Final = 1 << 20
_TURNS: Final = 10
_LAYERS, _TOPK = 25, 10
_ROW_CHARS: Final = _LAYERS * _TOPK * 4 * 4 / 3
_TIMEOUT_S: Final = 300.0
_QUIET_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One fetch here, one assembly of the usual kind, the waits of small questions.

    Attributes:
        wall_s: From the request to the reply's last byte.
        cpu_s: Of the shard, small questions included.
        usual_wall_s: Of the usual way; its loop would stand still for so long.
        usual_cpu_s: Its CPU.
        idle_ms: Waits of small questions before, one per question that was due.
        busy_ms: The same from the request to the last byte.
    """

    wall_s: float
    cpu_s: float
    usual_wall_s: float
    usual_cpu_s: float
    idle_ms: list[float]
    busy_ms: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All that was measured.

    Attributes:
        records_bytes: Size of the session's records.
        reply_bytes: Size of its samples.
        rounds: The first one, which warms up, left out.
    """

    records_bytes: int
    reply_bytes: int
    rounds: list[Round]


def percentile_of(values: Sequence[float], share: float) -> float:
    """The value below which a share of the values is; 0.0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def verdicts_of(outcome: Outcome) -> list[Verdict]:
    """The goals and what was measured."""
    waits = [wait for each in outcome.rounds for wait in each.busy_ms]
    found = (
        ("p99 of small questions meanwhile, ms", 50.0, False, [percentile_of(waits, 0.99)]),
        ("CPU of the usual way, x", 1.0, True, [r.usual_cpu_s / r.cpu_s for r in outcome.rounds]),
        (
            "time of the usual way, x",
            1.0,
            True,
            [r.usual_wall_s / r.wall_s for r in outcome.rounds],
        ),
    )
    return [
        Verdict(what=what, limit=limit, at_least=at_least, got=spread_of(values))
        for what, limit, at_least, values in found
    ]


def render(outcome: Outcome) -> str:
    """The figures as text."""
    mib = outcome.reply_bytes / _MIB
    idle = [wait for each in outcome.rounds for wait in each.idle_ms]
    cpu = spread_of([each.cpu_s * 1e3 / mib for each in outcome.rounds])
    usual = spread_of([each.usual_cpu_s * 1e3 / mib for each in outcome.rounds])
    wall = spread_of([each.wall_s for each in outcome.rounds])
    usual_wall = spread_of([each.usual_wall_s for each in outcome.rounds])
    lines = [
        f"records of {outcome.records_bytes / _MIB:.0f} MiB, samples of {mib:.0f} MiB",
        f"here       {wall.median:6.2f} s  {cpu.median:6.2f} CPU ms/MiB",
        f"usual way  {usual_wall.median:6.2f} s  {usual.median:6.2f} CPU ms/MiB",
        f"small questions while idle: p99 {percentile_of(idle, 0.99):.1f} ms",
    ]
    lines += [verdict.line() for verdict in verdicts_of(outcome)]
    return "\n".join(lines)


def usual_samples(records: list[dict[str, Any]]) -> bytes:
    """Samples as they are usually made of parsed records: the same tensors, step by step."""
    merged: dict[str, Any] | None = None
    for record in records:
        meta = record["response"]["choices"][0]["meta_info"]
        sampled = meta["output_token_logprobs"]
        tokens = record["request"]["input_ids"] + [entry[1] for entry in sampled]
        rows = np.frombuffer(base64.b64decode(meta["routed_experts"]), "<i4")
        turn = {
            "tokens": tokens,
            "mask": [1] * len(sampled),
            "log_probs": [entry[0] for entry in sampled],
            "rows": rows.reshape(len(tokens) - 1, _LAYERS, -1),
        }
        if merged is not None:
            before, turn = copy.deepcopy(merged), copy.deepcopy(turn)
            seen = len(tokens) - len(before["tokens"]) - len(sampled)
            turn["mask"] = before["mask"] + [0] * seen + turn["mask"]
            turn["log_probs"] = before["log_probs"] + [0.0] * seen + turn["log_probs"]
        merged = turn
    if merged is None:
        raise ValueError("no records")
    return safetensors.numpy.save(
        {
            "tokens.0": np.array(merged["tokens"], "i8"),
            "loss_mask.0": np.array(merged["mask"], "u1"),
            "rollout_log_probs.0": np.array(merged["log_probs"], "f8"),
            "rollout_routed_experts.0": np.ascontiguousarray(merged["rows"]),
        }
    )


def measure(folder: Path, mib: int, rounds: int) -> Outcome:
    """Start the servers, fill a session, run all rounds.

    Raises:
        LoadError: A server answered with an error or did not start, or the two ways differ.
        GroupError: The group did not start.
    """
    last_tokens = int(2 * mib * _MIB / (_TURNS + 1) / _ROW_CHARS)
    options = {"layers": str(_LAYERS), "topk": str(_TOPK), "context": str(last_tokens + 8192)}
    env = {"SESSIONS_REPLAY_LAYERS": str(_LAYERS)}
    with (
        open_engines(folder, 1, options) as engines,
        open_replay_group(folder, 1, engines.urls, env) as group,
        RawConnection(group.address, timeout_s=_TIMEOUT_S) as connection,
    ):
        path = _create(connection)
        small = _create(connection).rpartition("/")[2]
        _fill(connection, path, last_tokens)
        whole = connection.ask(request_bytes("GET", path)).body
        records: list[dict[str, Any]] = json.loads(whole)["records"]
        found: list[Round] = []
        reply = b""
        for number in range(rounds + 1):  # the first one warms up
            print(f"round {number} of {rounds}", file=sys.stderr, flush=True)
            with Probing(group.address, [small]) as probing:
                time.sleep(_QUIET_S)
                begin, cpu_s = time.monotonic(), read_cpu_s(group.pids["shard 0"])
                reply = _ask(connection, "POST", f"{path}/samples")
                end, spent_s = time.monotonic(), read_cpu_s(group.pids["shard 0"]) - cpu_s
                waits = probing.stop()
            usual_begin, usual_cpu_s = time.monotonic(), time.process_time()
            usual = usual_samples(records)
            found.append(
                Round(
                    wall_s=end - begin,
                    cpu_s=spent_s,
                    usual_wall_s=time.monotonic() - usual_begin,
                    usual_cpu_s=time.process_time() - usual_cpu_s,
                    idle_ms=[ms for at_s, ms in waits if at_s + ms / 1e3 < begin],
                    busy_ms=[ms for at_s, ms in waits if at_s + ms / 1e3 >= begin and at_s < end],
                )
            )
            _check_equal(reply, usual)
    return Outcome(records_bytes=len(whole), reply_bytes=len(reply), rounds=found[1:])


def _check_equal(reply: bytes, usual: bytes) -> None:
    sample: Sample = parse_samples(Answer(status=200, headers={}, body=reply)).samples[0]
    for name, array in safetensors.numpy.load(usual).items():
        if not np.array_equal(array, getattr(sample, name.removesuffix(".0"))):
            raise LoadError(f"the two ways differ in {name}")


def _create(connection: RawConnection) -> str:
    created = json.loads(_ask(connection, "POST", "/sessions"))
    return f"/sessions/{created['session_id']}"


def _fill(connection: RawConnection, path: str, last_tokens: int) -> None:
    """Chat so that contexts grow in equal steps."""
    step = last_tokens // _TURNS
    messages: list[dict[str, Any]] = []
    for number in range(_TURNS):
        messages.append({"role": "user", "content": text_of_tokens(step, f"{number}")})
        body = {"model": "sim", "messages": messages, "sim": {"content": "so it is"}}
        reply = _ask(connection, "POST", f"{path}/v1/chat/completions", json.dumps(body).encode())
        messages.append(json.loads(reply)["choices"][0]["message"])


def _ask(connection: RawConnection, method: str, target: str, body: bytes = b"") -> bytes:
    reply = connection.ask(request_bytes(method, target, body=body))
    if reply.status != 200:
        raise LoadError(f"{method} {target} got {reply.status}: {reply.body[:200]!r}")
    return reply.body


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.samples")
    parser.add_argument("--mib", type=int, default=100, help="size of the session's records")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="sess", dir="/tmp"))  # short: sockets have 107 bytes
    try:
        outcome = measure(folder, options.mib, options.rounds)
    finally:
        shutil.rmtree(folder)
    print(render(outcome))
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(outcome), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
