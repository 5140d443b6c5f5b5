"""Replay at the production shape: many agents, replies that grow to 134 MiB, one group.

`python -m benchmarks.production` starts simulated engines and a group, lets all agents hold their
conversations at once, then two with the largest replies on one shard, then (`--baseline`) one on
the group and one on a server of the usual kind, turn by turn. It prints what each process spent,
what the group weighed, how long loops let others wait, and whether the goals are met. The exit code
says whether it ran without an error; with `--check`, 1 says that a goal is missed.

Spec: docs/benchmark.md#production-shape
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.docs import replace_figures
from benchmarks.load import LoadError
from benchmarks.outcome import Outcome, Plan, render_json
from benchmarks.outcome_text import render_text
from benchmarks.production_run import run_plan
from benchmarks.shape import MIB, ROW_UNIT_BYTES, Shape
from tests.support.group import GroupError

FULL: Final = Shape(sessions=32, turns=50, final_body_bytes=134 * MIB)
QUICK: Final = Shape(sessions=4, turns=20, final_body_bytes=134 * MIB)  # 1/20 of the bytes
_MARKS: Final = "production"
_MISSED: Final = 1
_NOT_RUN: Final = 2


def _parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.production")
    add = parser.add_argument
    add("--quick", action="store_true", help="a twentieth: 4 sessions of 20 turns")
    add("--sessions", type=int, help=f"at once (default: {FULL.sessions})")
    add("--turns", type=int, help=f"of each session (default: {FULL.turns})")
    add("--final-body-mib", type=float, help="reply of the last turn (default: 134)")
    add("--bytes-per-token", type=int, default=ROW_UNIT_BYTES, help="a multiple of 1000")
    add("--shards", type=int, default=2, help="(default: %(default)s)")
    add("--engine-procs", type=int, default=1, help="(default: %(default)s)")
    add("--think-s", type=float, default=0.0, help="seconds before an engine answers")
    add("--tool-s", type=float, default=0.0, help="seconds that a tool takes")
    add("--spool", type=Path, metavar="FOLDER", help="keep replay in files there, not in memory")
    add("--baseline", action="store_true", help="also compare with a server of the usual kind")
    add("--check", action="store_true", help="exit 1 if a goal is missed")
    add("--json", type=Path, metavar="FILE", help="write every sample there")
    add("--picture", type=Path, metavar="FILE", help="draw memory and CPU there (PNG, SVG)")
    add("--docs", type=Path, metavar="FILE", help="replace the figures of a page")
    options = parser.parse_args(arguments)
    if options.bytes_per_token <= 0 or options.bytes_per_token % ROW_UNIT_BYTES:
        parser.error(f"--bytes-per-token must be a multiple of {ROW_UNIT_BYTES}")
    if options.turns is not None and options.turns < 2:
        parser.error("--turns must be at least 2")
    return options


def plan_of(options: argparse.Namespace) -> Plan:
    """What the command line asks for."""
    base = QUICK if options.quick else FULL
    given_mib = options.final_body_mib
    return Plan(
        shape=Shape(
            sessions=options.sessions or base.sessions,
            turns=options.turns or base.turns,
            final_body_bytes=int(given_mib * MIB) if given_mib else base.final_body_bytes,
            row_bytes=options.bytes_per_token,
        ),
        shards=options.shards,
        engine_procs=options.engine_procs,
        think_s=options.think_s,
        tool_s=options.tool_s,
        spool=str(options.spool or ""),
        has_baseline=options.baseline,
    )


def _tell(options: argparse.Namespace, outcome: Outcome) -> None:
    text = render_text(outcome)
    print(text)
    if options.json is not None:
        options.json.write_text(render_json(outcome))
    if options.docs is not None:
        options.docs.write_text(replace_figures(options.docs.read_text(), text, _MARKS))
    if options.picture is not None:
        # Imported only here: it takes a second and is not needed to measure.
        from benchmarks.picture import draw  # noqa: PLC0415 - see above

        draw(outcome, options.picture)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the exit code."""
    options = _parse_arguments(arguments)
    folder = Path(tempfile.mkdtemp(prefix="sesp", dir="/tmp"))  # short: sockets have 107 bytes
    try:
        outcome = run_plan(plan_of(options), folder)
    except (LoadError, GroupError) as error:
        print(f"the benchmark did not run: {error}", file=sys.stderr)
        return _NOT_RUN
    finally:
        shutil.rmtree(folder)
    _tell(options, outcome)
    for failure in outcome.failures:
        print(failure, file=sys.stderr)
    is_missed = not all(verdict.is_met for verdict in outcome.verdicts())
    if outcome.failures:
        return _NOT_RUN
    return _MISSED if options.check and is_missed else 0


if __name__ == "__main__":
    sys.exit(main())
