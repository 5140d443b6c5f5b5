"""vLLM as a process of its own: the real one on the CPU, or the simulated one that says it is.

The real one is what `ops/engine/test_engine.sh` made; the folder is in ENGINE_HOME. Without that
variable the simulated engine takes its place, with the same numbers of layers and experts, so the
tests of tests/vllm run on both. A process is held in a POSIX session of its own and ended with all
that it started.

Spec: docs/engines.md#a-real-engine
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx

from tests.support.group import ROOT
from tests.support.processes import rss_bytes, session_members
from tests.support.waiting import wait_until

CONTEXT: Final = 2048
LAYERS: Final = 3
TOPK: Final = 2
EXPERTS: Final = 8
MODEL: Final = "tiny"
# It takes a minute on two cores, most of it importing; one that is busy besides takes longer.
_START_DEADLINE_S: Final = 400.0
_GONE_DEADLINE_S: Final = 20.0
_RUNNING: Final = re.compile(r"^vllm:num_requests_running\{.*\} (\S+)$", re.MULTILINE)


def engine_home() -> Path | None:
    """The folder of the real engine; None for the simulated one."""
    named = os.environ.get("ENGINE_HOME")
    return Path(named) if named else None


class VLLMEngine:
    """One engine on one address, which can be killed and started again.

    Attributes:
        url: Its base URL, the same after another start.
        is_real: Whether it is no simulation.
        start_s: Seconds that its last start took.
    """

    def __init__(self, folder: Path) -> None:
        """Choose an address; nothing runs yet.

        Args:
            folder: For its log.
        """
        self._home = engine_home()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        self._log = folder / "engine.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"
        self.is_real = self._home is not None
        self.start_s = 0.0

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            AssertionError: It ended or did not answer in time; the message ends with its log.
        """
        began = time.monotonic()
        with self._log.open("ab") as log:
            process = self._process = subprocess.Popen(
                self._command(),
                cwd=ROOT,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(
            lambda: self._is_up() or process.poll() is not None,
            "the engine answers",
            _START_DEADLINE_S,
        )
        assert process.poll() is None, self._log.read_text(errors="replace")[-4000:]
        self.start_s = time.monotonic() - began

    def kill(self) -> None:
        """End it at once with all its processes, and wait until none is left."""
        process = self._process
        assert process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        wait_until(lambda: not session_members(process.pid), "the engine is gone", _GONE_DEADLINE_S)

    def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Ask it without anybody between."""
        return httpx.request(method, self.url + path, json=body, timeout=120, trust_env=False)

    def chat(self, **fields: object) -> dict[str, Any]:
        """One chat; the reply must be a 200."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}
        reply = self.ask("POST", "/v1/chat/completions", body)
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found

    def running(self) -> int:
        """Requests that it works on, by its own metrics."""
        found = _RUNNING.search(self.ask("GET", "/metrics").text)
        assert found is not None
        return int(float(found[1]))

    def memory_bytes(self) -> int:
        """Resident memory of all its processes."""
        assert self._process is not None
        return sum(map(rss_bytes, session_members(self._process.pid)))

    def _is_up(self) -> bool:
        try:
            return self.ask("GET", "/health").status_code == 200
        except httpx.TransportError:
            return False

    def _command(self) -> list[str]:
        if self._home is None:
            options = {
                "port": self._port,
                "dialect": "vllm",
                "model": MODEL,
                "context": CONTEXT,
                "layers": LAYERS,
                "topk": TOPK,
                "experts": EXPERTS,
                "token-s": 0.002,
            }
            named = [word for name, value in options.items() for word in (f"--{name}", str(value))]
            return [sys.executable, "-m", "sessions", "sim", *named]
        return [
            str(self._home / "bin" / "python"),
            *("-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(self._home / "model"), "--served-model-name", MODEL),
            *("--host", "127.0.0.1", "--port", str(self._port)),
            *("--max-model-len", str(CONTEXT), "--enforce-eager"),
            *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
            *("--reasoning-parser", "qwen3", "--enable-return-routed-experts"),
            *("--logits-processors", "force_ids:ForceIds"),
        ]

    def _environment(self) -> dict[str, str]:
        kept = {n: v for n, v in os.environ.items() if not n.lower().endswith("_proxy")}
        if self._home is None:
            return kept
        return kept | {
            "PYTHONPATH": str(ROOT / "ops" / "engine"),
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
        }


@contextlib.contextmanager
def open_vllm(folder: Path) -> Iterator[VLLMEngine]:
    """A running engine; nothing of it is left in the end."""
    engine = VLLMEngine(folder)
    engine.start()
    try:
        yield engine
    finally:
        engine.kill()
