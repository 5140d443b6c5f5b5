"""Why a connection failed, in words that a client may see.

The libraries' own texts name addresses and paths; they stay in the log.

Must not know connections.

Spec: docs/architecture.md#engine
"""

from __future__ import annotations

import os
import socket
import ssl


def reason_of(error: BaseException | None) -> str:
    """The reason, lower case, without addresses.

    Args:
        error: What the loop reported; None for an end in good order.
    """
    if error is None:
        return "the connection ended"
    if isinstance(error, ssl.SSLError):
        refusal = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else ""
        return f"TLS failed, {refusal or error.reason or type(error).__name__}"
    if isinstance(error, socket.gaierror):
        return "its name is not known"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    if type(error) is OSError:  # what the loop raises when several addresses of a name failed
        return "none of its addresses takes connections"
    return type(error).__name__
