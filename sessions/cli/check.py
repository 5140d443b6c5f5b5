"""`check URL`: is this server healthy? For trainers before generate and eval, and for scripts.

Spec: docs/operations.md#check
"""

from __future__ import annotations

import argparse
from urllib.parse import urlsplit

from sessions.client.calls import CHECK_TIMEOUT_S


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("url", type=_http_url, metavar="URL", help="address of the server")
    parser.add_argument(
        "--timeout-s",
        type=_positive_seconds,
        default=CHECK_TIMEOUT_S,
        metavar="S",
        help="limit of the connect and of each wait for bytes (default: %(default)g)",
    )


def run_command(args: argparse.Namespace) -> None:
    """Ask, and print one line if the server is healthy.

    Raises:
        UnhealthyError: It is not.
    """
    from sessions.client.sync_client import SessionClient  # noqa: PLC0415 -- see main.py

    with SessionClient(args.url) as client:
        health = client.check(timeout_s=args.timeout_s)
    print(
        f"{args.url} is healthy: shards={len(health.shards)} instance={health.instance_id} "
        f"version={health.version} uptime_s={health.uptime_s:g}"
    )


def _http_url(text: str) -> str:
    try:
        found = urlsplit(text)
        whole = found.scheme in {"http", "https"} and found.hostname and found.port != 0
    except ValueError:  # a port that is no number, or brackets that do not match
        whole = False
    if not whole:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address like http://127.0.0.1:8000")
    return text


def _positive_seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value
