"""Session keys: form, signature, and the split at the last dot."""

import hashlib
import hmac
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.errors.sessions import BadSessionKeyError
from sessions.routing.keys import id_of_session_key, session_key_of, verify_session_key

ids = st.text(string.ascii_letters + string.digits + "._~-", min_size=1, max_size=128)
secrets = st.binary(min_size=1, max_size=32)
law = settings(derandomize=True, deadline=None)
HEX = "0123456789abcdef" * 2


def test_a_key_is_the_id_a_dot_and_half_of_the_hmac():
    digest = hmac.new(b"run", b"abc", hashlib.sha256).hexdigest()
    assert session_key_of(b"run", "abc") == f"abc.{digest[:32]}"


@law
@given(secrets, ids)
def test_a_key_verifies_and_names_its_id(secret: bytes, session_id: str):
    key = session_key_of(secret, session_id)
    assert verify_session_key(secret, key) == session_id
    assert id_of_session_key(key) == session_id


@law
@given(secrets, secrets, ids)
def test_a_key_is_refused_under_another_secret(secret: bytes, other: bytes, session_id: str):
    # HMAC pads a short secret with zero bytes, so such a pair is one secret.
    if secret.rstrip(b"\0") == other.rstrip(b"\0"):
        return
    with pytest.raises(BadSessionKeyError):
        verify_session_key(other, session_key_of(secret, session_id))


@law
@given(ids, st.integers(0, 31))
def test_a_key_is_refused_when_any_digit_of_its_signature_differs(session_id: str, place: int):
    key = session_key_of(b"run", session_id)
    at = len(session_id) + 1 + place
    forged = key[:at] + ("0" if key[at] != "0" else "1") + key[at + 1 :]
    assert id_of_session_key(forged) == session_id
    with pytest.raises(BadSessionKeyError):
        verify_session_key(b"run", forged)


def test_a_signature_does_not_serve_another_id():
    signature = session_key_of(b"run", "abc").rpartition(".")[2]
    with pytest.raises(BadSessionKeyError):
        verify_session_key(b"run", f"abd.{signature}")


def test_an_id_with_dots_is_split_off_at_the_last_one():
    assert id_of_session_key(f"pod-3.a.b.{HEX}") == "pod-3.a.b"
    assert id_of_session_key(f"a.{HEX}.{HEX}") == f"a.{HEX}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        "sk-proj-123",
        f".{HEX}",
        HEX,
        f"a{HEX}",
        f"a.{HEX[:-1]}",
        f"a.{HEX}0",
        f"a.{HEX.upper()}",
        f"a b.{HEX}",
        f"a/b.{HEX}",
        f"a%62.{HEX}",
        f"a.{HEX}\n",
        f" a.{HEX}",
        f"{'x' * 129}.{HEX}",
        f"é.{HEX}",
    ],
)
def test_a_text_without_the_form_names_nothing_and_does_not_verify(text: str):
    assert id_of_session_key(text) is None
    with pytest.raises(BadSessionKeyError):
        verify_session_key(b"run", text)


def test_the_longest_id_fits():
    assert id_of_session_key(f"{'x' * 128}.{HEX}") == "x" * 128
