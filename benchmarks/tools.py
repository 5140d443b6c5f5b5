"""Episode tools at full size: what a call costs, and what must hold for thousands of episodes.

`python -m benchmarks.tools <part>` runs one part, prints what clients saw, and ends with 1 if one
of them saw what none may see. The same things in small are tests (`tests/e2e`, `tests/benchmarks`).
No goal is a time; `calls` compares speeds of the same rounds.

Spec: docs/benchmark.md#tools
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.docs import replace_figures
from benchmarks.load import LoadError
from benchmarks.tool_calls import measure_calls

_FAULT = 1
_NOT_RUN = 2
_MARKS = "tool calls"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a part found.

    Attributes:
        text: For a terminal and for docs/benchmark.md.
        json: Every figure.
        faults: What no client may see, or a goal that was to be met and was not.
    """

    text: str
    json: object
    faults: Sequence[str] = field(default_factory=list)


def run_calls(options: argparse.Namespace, folder: Path) -> Result:
    """Calls a second behind a router and on one shard alone."""
    calls = measure_calls(folder, options.rounds, options.run_s)
    missed = [verdict.what for verdict in calls.verdicts() if not verdict.is_met]
    faults = [f"missed: {what}" for what in missed] if options.check else []
    return Result(text=calls.text(), json=calls.to_json(), faults=faults)


def _parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tools")
    parts = parser.add_subparsers(required=True, metavar="PART")
    calls = parts.add_parser("calls", help="calls a second, with and without a router")
    calls.add_argument("--rounds", type=int, default=5)
    calls.add_argument("--run-s", type=int, default=4, help="length of one run; whole seconds")
    calls.add_argument("--check", action="store_true", help="exit 1 if a goal is missed")
    calls.add_argument("--docs", type=Path, metavar="FILE", help="replace the figures of a page")
    calls.set_defaults(run=run_calls)
    for part in parts.choices.values():
        part.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the part that the command line names; returns the exit code."""
    options = _parse_arguments(arguments)
    folder = Path(tempfile.mkdtemp(prefix="sesb", dir="/tmp"))  # short: sockets have 107 bytes
    try:
        result: Result = options.run(options, folder)
    except LoadError as error:
        print(f"the benchmark did not run: {error}", file=sys.stderr)
        return _NOT_RUN
    finally:
        shutil.rmtree(folder)
    print(result.text)
    for fault in result.faults:
        print(f"FAULT {fault}")
    if options.json is not None:
        options.json.write_text(json.dumps(result.json, indent=1) + "\n")
    if getattr(options, "docs", None) is not None:
        options.docs.write_text(replace_figures(options.docs.read_text(), result.text, _MARKS))
    return _FAULT if result.faults else 0


if __name__ == "__main__":
    sys.exit(main())
