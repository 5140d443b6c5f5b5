"""Runs `python -m sessions` as a user does.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import subprocess
import sys


def run_command(*words: str, timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
    """Run it to its end.

    Args:
        words: What follows the module's name.
        timeout_s: It is killed after this long.

    Returns:
        Exit code, stdout and stderr as text.

    Raises:
        subprocess.TimeoutExpired: It did not end.
    """
    command = [sys.executable, "-m", "sessions", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
