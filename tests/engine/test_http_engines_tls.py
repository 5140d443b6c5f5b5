"""Engines over TLS."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from sessions.engine.http_engines import HttpEngines
from tests.support.engine_clients import error_of, request
from tests.support.loops import BOTH_LOOPS, Backend
from tests.support.raw_engine import answers_in_order, raw_engine
from tests.support.raw_replies import KeepingSink, length_reply


@pytest.fixture(params=BOTH_LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    backend: Backend = request.param
    return backend


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost, signed by itself, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(path.with_suffix(".key")), "-out", str(path)]
    command = [openssl, *made.split(), *named, *files]
    subprocess.run(command, check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + path.with_suffix(".key").read_bytes())
    return path


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_an_engine_over_tls_is_reached_if_its_certificate_is_trusted(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, *, is_trusted: bool
):
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(certificate)
    body = b"x" * 500_000
    async with raw_engine(answers_in_order(length_reply(body)), tls=served) as server:
        engine = HttpEngines(
            [f"https://localhost:{server.port}"], timeout_s=30, connect_timeout_s=30
        )
        if is_trusted:
            for _ in range(2):
                sink = KeepingSink(has_room=lambda count: count % 2 == 0)
                await engine.exchange(request(), sink.open)
                assert bytes(sink.data) == body
            assert server.connections == 1
        else:
            error = await error_of(lambda: engine.exchange(request()))
            assert "certificate" in error.message
        await engine.close()
