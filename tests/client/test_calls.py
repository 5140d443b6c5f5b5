"""Why no answer came, in the same words whichever library says it."""

from __future__ import annotations

import errno

import httpx

from sessions.client.calls import (
    check_call,
    create_call,
    delete_call,
    reason_of,
    records_call,
    samples_call,
)
from sessions.client.errors import UnhealthyError, UnreachableError

URL = "http://a:1"


def raised(outer: Exception, *causes: BaseException) -> Exception:
    at: BaseException = outer
    for cause in causes:
        at.__cause__ = cause
        at = cause
    return outer


def test_an_error_of_the_system_is_found_below_any_wrapping():
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "x")
    told = f"{URL} does not answer: connection refused"
    assert reason_of(raised(httpx.ConnectError("all failed"), OSError("all"), refused), URL) == told
    group = ExceptionGroup("many", [ValueError(), refused])
    assert reason_of(raised(httpx.ConnectError("all failed"), OSError("all"), group), URL) == told


def test_a_loop_of_causes_ends():
    error = httpx.ConnectError("a")
    error.__cause__ = inner = OSError("b")
    inner.__cause__ = error
    assert reason_of(error, URL) == f"{URL} does not answer: a"


def test_time_outs_and_other_losses_are_one_line():
    assert reason_of(httpx.ReadTimeout(""), URL).endswith("timed out (ReadTimeout)")
    assert reason_of(httpx.RemoteProtocolError("a\nb"), URL).endswith(": a b")
    assert reason_of(httpx.ReadError(""), URL).endswith(": ReadError")


def test_only_a_check_that_is_lost_is_unhealthy():
    assert isinstance(check_call(URL).lost("x"), UnhealthyError)
    for call in (create_call(), records_call("a"), samples_call("a"), delete_call("a")):
        assert isinstance(call.lost("x"), UnreachableError)
