"""`sim --port N`: the simulated engine alone, on an address of its own.

Each option of the engine is a flag, read by the parser of the URL form, so that the flags and
SESSIONS_ENGINE_URL=sim:?... cannot differ.

Spec: docs/sim.md#serving
"""

from __future__ import annotations

import argparse
from dataclasses import fields

from sessions.sim.options import SimOptions, options_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--port", type=int, required=True, help="port; 0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1", help="address (default: %(default)s)")
    parser.add_argument("--tokenizer", default="pkg:qwen3", help="as SESSIONS_TOKENIZER")
    options = parser.add_argument_group("options of the engine (docs/sim.md)")
    for field in fields(SimOptions):
        options.add_argument(f"--{field.name.replace('_', '-')}", dest=field.name, metavar="VALUE")


def run_command(args: argparse.Namespace) -> None:
    """Run the engine until SIGINT or SIGTERM; its base URL is the one line on stdout.

    Raises:
        SettingsError: An option, the tokenizer or the address is refused.
    """
    from sessions.sim.server import run_sim  # noqa: PLC0415 -- see main.py

    names = [field.name for field in fields(SimOptions)]
    given = [(name, value) for name in names if (value := getattr(args, name)) is not None]
    run_sim(
        args.host,
        args.port,
        options_of(given),
        tokenizer=args.tokenizer,
        announce=_announce,
    )


def _announce(url: str) -> None:
    print(url, flush=True)
