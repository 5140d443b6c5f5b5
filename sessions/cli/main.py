"""The command line: its commands and how each ends.

Exit code 0 is success, 1 a fault told on one line of stderr, 2 a wrong call (argparse), 130 Ctrl-C.
A command is a module with `add_arguments` and `run_command`; `run_command` imports what it needs,
so `check` does not load the tokenizer of `sim`. The server itself is started with gunicorn, not
here.

Spec: docs/operations.md#command-line
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from sessions.cli import check, settings, sim
from sessions.client.errors import SessionsClientError
from sessions.errors.unseen import SettingsError

_FAULT = 1
_INTERRUPTED = 130  # as a shell says it: 128 + SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Its words; None takes those of the process.

    Returns:
        The exit code.

    Raises:
        SystemExit: The words are wrong, or ask for help or the version.
    """
    args = _parser().parse_args(argv)
    try:
        args.run_command(args)
    except (SessionsClientError, SettingsError) as error:
        print(error, file=sys.stderr)
        return _FAULT
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sessions",
        description="Tools beside a sessile server; start one with: gunicorn -c gunicorn_conf.py",
    )
    parser.add_argument("--version", action="version", version=f"sessile {version('sessile')}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, command, told in (
        ("check", check, "exit 0 if a server is healthy, else 1 and one line that names what died"),
        ("sim", sim, "run the simulated engine alone"),
        ("settings", settings, "print all settings as this environment sets them"),
    ):
        added = commands.add_parser(name, help=told, description=told)
        command.add_arguments(added)
        added.set_defaults(run_command=command.run_command)
    return parser
