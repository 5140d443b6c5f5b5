"""A server on a real port that answers nothing but probes, for tests of what asks from outside.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.fake_server import FakeServer


class HealthServer(ThreadingHTTPServer):
    """Answers as `health` says, which a test may change; is silent while `silent` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.health: dict[str, Any] = FakeServer().health
        self.silent = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def answer(self, path: str) -> tuple[int, object]:
        """Status and document of a probe address."""
        status = 200 if self.health["status"] == "ok" else 503
        documents = {
            "/livez": (200, {"status": "ok"}),
            "/readyz": (status, {"status": self.health["status"]}),
            "/healthz": (status, self.health),
        }
        return documents.get(path, (404, {"error": {"message": "no such route"}}))


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, HealthServer)
        if server.silent.is_set():
            self.rfile.read(1)  # until the client gives up
            return
        status, document = server.answer(self.path)
        body = json.dumps(document, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def running_health_server() -> Iterator[HealthServer]:
    """The server in a thread."""
    with HealthServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
