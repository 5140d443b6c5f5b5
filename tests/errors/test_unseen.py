"""What the errors keep that no client sees."""

from __future__ import annotations

from http import HTTPStatus

from sessions.errors.unseen import SimRefusalError


def test_a_refusal_of_the_simulated_engine_keeps_what_it_is_given():
    error = SimRefusalError("m", status=429, type="T", param="p")
    assert (str(error), error.status, error.type, error.param) == ("m", 429, "T", "p")
    assert SimRefusalError("m").status == HTTPStatus.BAD_REQUEST
