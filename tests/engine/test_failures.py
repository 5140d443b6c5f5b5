import errno
import socket
import ssl

import pytest

from sessions.engine.failures import reason_of


def certificate_error() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "[SSL] 10.0.0.1")
    error.verify_message = "self-signed certificate"
    return error


def tls_error() -> ssl.SSLError:
    error = ssl.SSLError(1, "10.0.0.1")
    error.reason = "WRONG_VERSION_NUMBER"
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, "the connection ended"),
        (OSError(errno.ECONNREFUSED, "('10.0.0.1', 1)"), "connection refused"),
        (ConnectionResetError(errno.ECONNRESET, "10.0.0.1"), "connection reset by peer"),
        (OSError("Multiple exceptions: 10.0.0.1"), "none of its addresses takes connections"),
        (socket.gaierror(-2, "10.0.0.1"), "its name is not known"),
        (certificate_error(), "TLS failed, self-signed certificate"),
        (tls_error(), "TLS failed, WRONG_VERSION_NUMBER"),
        (ConnectionResetError("10.0.0.1"), "ConnectionResetError"),
        (ValueError("10.0.0.1"), "ValueError"),
    ],
)
def test_the_reason_is_given_without_addresses(error: BaseException | None, reason: str):
    assert reason_of(error) == reason
