"""Naming: which session a head names, and that the path is read as the application reads it."""

import base64
import json
import string
from collections.abc import Callable, Mapping
from urllib.parse import quote, unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.errors.sessions import BadSessionIdError
from sessions.routing.claimed_kinds import (
    EPISODE_STOPS,
    MCP_SESSIONS,
    ROLLOUT_STOPS,
    environment_kind,
    episode_kind,
)
from sessions.routing.episode_tokens import sign_episode_token
from sessions.routing.kinds import (
    ROLLOUT,
    BodyNaming,
    HeaderNaming,
    Named,
    Ownership,
    SessionKind,
)
from sessions.routing.naming import name_of

HEX = b"0123456789abcdef" * 2
KEY = b"abc." + HEX
EPISODE = SessionKind(
    name="episode",
    ownership=Ownership.CLAIM,
    headers=(
        HeaderNaming(
            name=b"x-episode", under="/", reader=lambda value: value.decode() if value else None
        ),
    ),
)
ids = st.text(string.ascii_letters + string.digits + "._~-", min_size=1, max_size=128)


def headers(found: Mapping[bytes, bytes] | None = None) -> Callable[[bytes], list[bytes]]:
    return lines(*(found or {}).items())


def lines(*found: tuple[bytes, bytes]) -> Callable[[bytes], list[bytes]]:
    return lambda name: [value for header, value in found if header == name]


def key_of(path: str, found: Mapping[bytes, bytes] | None = None) -> str | None:
    named = name_of((ROLLOUT,), path, headers(found))
    return None if named is None else named.key


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/sessions/abc", "abc"),
        ("/sessions/abc/", "abc"),
        ("/sessions/abc/v1/chat/completions", "abc"),
        ("/sessions/abc//x", "abc"),
        ("/sessions/%61bc/v1", "abc"),
        ("/%73essions/abc/v1", "abc"),
        ("/%73ession%73/a%2Dc", "a-c"),
        ("/sessions/abc/a%2Fb", "abc"),
        ("/sessions/abc/%2E%2E", "abc"),
        ("/sessions/sessions/sessions", "sessions"),
        ("/", None),
        ("/sessions", None),
        ("/sessions/", None),
        ("/sessions%2F", None),
        ("/sessionsx/abc", None),
        ("/Sessions/abc", None),
        ("//sessions/abc", None),
        ("/x/sessions/abc", None),
        ("/v1/chat/completions", None),
        ("/v1%2Fx%zz", None),
        ("*", None),
        ("", None),
    ],
)
def test_a_rollout_is_named_by_its_path(path: str, key: str | None):
    assert key_of(path) == key


@pytest.mark.parametrize(
    "path",
    [
        "/sessions//v1/models",
        "/sessions/a b",
        "/sessions/a%20b/v1",
        "/sessions/a%2Fb/v1",
        "/sessions/%2F",
        "/sessions/" + "x" * 129,
        "/sessions/%2561",
        "/sessions/%zz",
        "/sessions/%C3%A9/v1",
        "/sessions/a;b/v1",
        "/sessions/%",
    ],
)
def test_a_bad_id_in_a_path_is_refused(path: str):
    with pytest.raises(BadSessionIdError):
        key_of(path)


@pytest.mark.parametrize(
    "path",
    [
        "/sessions%2Fabc",
        "/sessions%2fabc/v1",
        "/%73essions%2Fabc/v1",
        "%2Fsessions/abc",
        "%2Fsessions%2Fa",
    ],
)
def test_a_session_path_with_an_encoded_slash_is_refused(path: str):
    with pytest.raises(BadSessionIdError, match="encoded slash"):
        key_of(path)


@settings(derandomize=True, deadline=None)
@given(ids, st.sampled_from(["", "/", "/v1/models"]))
def test_any_quoting_of_an_id_names_the_same_session(session_id: str, rest: str):
    everything = "".join(f"%{ord(c):02X}" for c in session_id)
    for raw in (session_id, quote(session_id), everything):
        assert key_of(f"/sessions/{raw}{rest}") == session_id


@settings(derandomize=True, deadline=None, max_examples=400)
@given(st.text("s%2Fe/a73ions", max_size=24).map(lambda text: "/" + text))
def test_a_path_that_the_application_sees_as_a_session_is_never_unnamed(path: str):
    for raw in (path, "/sessions" + path, "/%73essions%2F" + path):
        try:
            key = key_of(raw)
        except BadSessionIdError:
            continue
        parts = unquote(raw).split("/")
        seen = parts[2] if parts[1] == "sessions" and len(parts) > 2 else ""
        assert (key or "") == seen


@pytest.mark.parametrize(
    "found", [{b"authorization": b"Bearer " + KEY}, {b"x-api-key": KEY}], ids=["bearer", "api-key"]
)
def test_a_session_key_names_its_session_on_plain_paths_only(found: dict[bytes, bytes]):
    assert key_of("/v1/chat/completions", found) == "abc"
    assert key_of("/%761/models", found) == "abc"
    assert key_of("/v1", found) is None
    assert key_of("/v2/models", found) is None
    assert key_of("/sessions", found) is None
    assert key_of("/livez", found) is None
    assert key_of("/sessions/other/v1/models", found) == "other"


def test_a_bearer_without_the_form_names_nothing():
    assert key_of("/v1/models", {b"authorization": b"Bearer sk-123"}) is None


def test_the_api_key_is_read_when_the_bearer_has_not_the_form():
    found = {b"authorization": b"Bearer sk-123", b"x-api-key": KEY}
    assert key_of("/v1/models", found) == "abc"


def test_the_bearer_wins_when_both_headers_hold_keys():
    found = {b"authorization": b"Bearer first." + HEX, b"x-api-key": KEY}
    assert key_of("/v1/models", found) == "first"


def test_the_kind_is_told_and_the_first_that_is_named_wins():
    found = headers({b"x-episode": b"e1"})
    assert name_of((EPISODE, ROLLOUT), "/sessions/abc", found) == Named(EPISODE, "e1")
    assert name_of((ROLLOUT, EPISODE), "/sessions/abc", found) == Named(ROLLOUT, "abc")
    assert name_of((ROLLOUT, EPISODE), "/run", found) == Named(EPISODE, "e1")
    assert name_of((EPISODE, ROLLOUT), "/sessions/abc", headers()) == Named(ROLLOUT, "abc")


def test_a_kind_that_is_not_installed_names_nothing():
    assert name_of((), "/sessions/abc", headers({b"x-episode": b"e1"})) is None
    assert name_of((EPISODE,), "/sessions/a b", headers()) is None


# --- claimed kinds

SECRET = b"run"
TOKEN = sign_episode_token(SECRET, "rollout-1", "nonce").encode()
ENVIRONMENT = environment_kind(cookie="env", token_header="X-Env-Token")
CLAIMED = (episode_kind("X-Token", SECRET), ENVIRONMENT, MCP_SESSIONS, ROLLOUT_STOPS)


def packed(content: object) -> bytes:
    """What signers put before their signature."""
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=")


COOKIE = b"env=" + packed({"session_id": "by-cookie"}) + b".time.signature"
ENV_TOKEN = packed({"sid": "by-token", "tools": []}) + b".signature"


@pytest.mark.parametrize(
    ("path", "found", "named"),
    [
        # a header token comes before all else (R-T10, R-T16)
        ("/x", {b"x-token": TOKEN}, ("episode", "rollout-1")),
        ("/mcp", {b"x-token": TOKEN, b"cookie": COOKIE}, ("episode", "rollout-1")),
        ("/x", {b"x-token": TOKEN, b"x-env-token": ENV_TOKEN}, ("episode", "rollout-1")),
        ("/ng-rollout/r/stop", {b"x-token": TOKEN}, ("episode", "rollout-1")),
        ("/mcp", {b"x-token": TOKEN, b"mcp-session-id": b"m"}, ("episode", "rollout-1")),
        # one that cannot be read names nothing
        ("/x", {b"x-token": b"garbage"}, None),
        ("/x", {b"x-token": TOKEN[:-1]}, None),
        ("/x", {b"x-token": b"garbage", b"cookie": COOKIE}, ("environment", "by-cookie")),
        # token before cookie on the MCP path, behind it elsewhere (R-T12)
        ("/x", {b"cookie": COOKIE, b"x-env-token": ENV_TOKEN}, ("environment", "by-cookie")),
        ("/mcp", {b"cookie": COOKIE, b"x-env-token": ENV_TOKEN}, ("environment", "by-token")),
        ("/mcp/", {b"cookie": COOKIE, b"x-env-token": ENV_TOKEN}, ("environment", "by-token")),
        ("/%6Dcp", {b"cookie": COOKIE, b"x-env-token": ENV_TOKEN}, ("environment", "by-token")),
        ("/mcpx", {b"cookie": COOKIE, b"x-env-token": ENV_TOKEN}, ("environment", "by-cookie")),
        ("/x", {b"x-env-token": ENV_TOKEN}, ("environment", "by-token")),
        ("/mcp", {b"cookie": COOKIE}, ("environment", "by-cookie")),
        ("/x", {b"cookie": b"env=bad", b"x-env-token": ENV_TOKEN}, ("environment", "by-token")),
        # cookies as an application reads them
        ("/x", {b"cookie": b"a=b; " + COOKIE + b"; c=d"}, ("environment", "by-cookie")),
        ("/x", {b"cookie": b"env=bad;" + COOKIE}, ("environment", "by-cookie")),
        ("/x", {b"cookie": COOKIE + b"; env=bad"}, None),
        ("/x", {b"cookie": b'env="' + COOKIE[4:] + b'"'}, ("environment", "by-cookie")),
        ("/x", {b"cookie": b"envx=1; ENV=2; env"}, None),
        # an MCP session on its path only
        ("/mcp", {b"mcp-session-id": b"m"}, ("mcp-session", "m")),
        ("/mcp", {b"mcp-session-id": b""}, None),
        ("/x", {b"mcp-session-id": b"m"}, None),
        # claimed paths
        ("/ng-rollout/r-1/stop", {}, ("rollout-stop", "r-1")),
        ("/ng-rollout/r-1", {}, ("rollout-stop", "r-1")),
        ("/ng%2Drollout/r%2D1/stop", {}, ("rollout-stop", "r-1")),
        ("/ng-rollout%2Fr-1", {}, ("rollout-stop", "r-1")),
        ("/ng-rollout/", {}, None),
        ("/ng-rollout//stop", {}, None),
        ("/ng-rollout", {}, None),
        ("/x", {}, None),
    ],
)
def test_a_claimed_session_is_named_in_the_order_of_the_kinds(
    path: str, found: dict[bytes, bytes], named: tuple[str, str] | None
):
    result = name_of(CLAIMED, path, headers(found))
    assert (None if result is None else (result.kind.name, result.key)) == named


def test_what_opens_a_session_is_not_named_by_another_one():
    body = BodyNaming(
        field="id", seed_routes=frozenset({"/seed"}), close_routes=frozenset({"/close"})
    )
    kind = environment_kind(cookie="env", token_header="X-Env-Token", body=body)
    for found in ({b"cookie": COOKIE}, {b"x-env-token": ENV_TOKEN}):
        assert name_of((kind,), "/seed", headers(found)) is None
        assert name_of((kind,), "/s%65ed", headers(found)) is None
        assert name_of((kind,), "/close", headers(found)) is not None
        assert name_of((kind,), "/seed/x", headers(found)) is not None


def test_a_stop_is_named_by_its_path_and_a_call_that_looks_like_one_by_its_token():
    """R-T16."""
    kinds = (episode_kind("X-Token", SECRET), EPISODE_STOPS)
    stop = name_of(kinds, "/ng-rollout/other/stop", headers())
    assert stop == Named(EPISODE_STOPS, "other")
    call = name_of(kinds, "/ng-rollout/other/stop", headers({b"x-token": TOKEN}))
    assert call == Named(kinds[0], "rollout-1")


def test_a_kind_that_has_only_a_header_reads_nothing_else():
    found = headers({b"cookie": COOKIE, b"x-env-token": ENV_TOKEN, b"mcp-session-id": b"m"})
    assert name_of(CLAIMED[:1], "/mcp", found) is None
    assert name_of(CLAIMED[:1], "/ng-rollout/r", found) is None


def test_the_ways_of_claimed_kinds_mean_nothing_for_rollouts():
    found = headers({b"x-token": TOKEN, b"cookie": COOKIE, b"mcp-session-id": b"m"})
    assert name_of((ROLLOUT,), "/mcp", found) is None


# --- several lines of one header


@pytest.mark.parametrize(
    ("kind", "path", "header", "value"),
    [
        (ROLLOUT, "/v1/models", b"authorization", b"Bearer " + KEY),
        (ROLLOUT, "/v1/models", b"x-api-key", KEY),
        (CLAIMED[0], "/tools/x", b"x-token", TOKEN),
        (ENVIRONMENT, "/x", b"x-env-token", ENV_TOKEN),
        (MCP_SESSIONS, "/mcp", b"mcp-session-id", b"m"),
    ],
    ids=["bearer", "api-key", "episode", "environment", "mcp"],
)
def test_a_session_that_is_named_twice_is_refused_unless_both_are_the_same(
    kind: SessionKind, path: str, header: bytes, value: bytes
):
    same = name_of((kind,), path, lines((header, value), (b"a", b"b"), (header, value)))
    assert same == name_of((kind,), path, lines((header, value)))
    assert same is not None
    for other in (b"", b"x", value + b" ", value[:-1]):
        for both in ((value, other), (other, value), (value, value, other)):
            with pytest.raises(BadSessionIdError, match="different") as caught:
                name_of((kind,), path, lines(*((header, each) for each in both)))
            assert caught.value.param == header.decode()
    under = "/v2/x" if path.startswith("/v1") else "/x"
    if kind in (ROLLOUT, MCP_SESSIONS):
        assert name_of((kind,), under, lines((header, value), (header, b"x"))) is None


def test_cookies_in_several_lines_are_read_as_one():
    apart = lines((b"cookie", b"a=b"), (b"x", b"y"), (b"cookie", COOKIE), (b"cookie", b"c=d"))
    assert name_of(CLAIMED, "/x", apart) == Named(ENVIRONMENT, "by-cookie")
    twice = lines((b"cookie", b"env=bad"), (b"cookie", COOKIE))
    assert name_of(CLAIMED, "/x", twice) == Named(ENVIRONMENT, "by-cookie")
    assert name_of(CLAIMED, "/x", lines((b"cookie", COOKIE), (b"cookie", b"env=bad"))) is None
