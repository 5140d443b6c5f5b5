import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from sessions.errors.unseen import SettingsError
from sessions.routing.claimed_kinds import EPISODE_STOPS, episode_kind
from sessions.routing.kind_text import kinds_to_text
from sessions.routing.kinds import ROLLOUT, HeaderNaming, Ownership, SessionKind
from sessions.settings import check_app_settings, read_settings
from sessions.shard.apps import LoadedApp, _context_of, load_app
from sessions.tools.claims import LocalClaims
from sessions.tools.context import ToolContext
from tests.support.apps import trivial
from tests.support.claiming_app import KIND, VISITS, ClaimingApp
from tests.support.episodes import HEADER, HeldEnvironment, context_of
from tests.support.resources_app import CounterResources
from tests.support.rollouts import ORIGIN, group_of, serve_state
from tests.support.waiting import wait_until_async


@asynccontextmanager
async def client_of(loaded: LoadedApp) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        serve_state(loaded.asgi) as asgi,  # type: ignore[arg-type]
        httpx.AsyncClient(transport=httpx.ASGITransport(asgi), base_url=ORIGIN) as client,
    ):
        yield client


async def test_the_rollout_server_is_the_default_and_counts_its_sessions():
    loaded = load_app(group_of({"SESSIONS_ENGINE_URL": "sim:", "SESSIONS_ID_PREFIX": "pod-1."}), 0)
    assert loaded.open_sessions() == 0
    async with client_of(loaded) as client:
        created = [(await client.post("/sessions")).json()["session_id"] for _ in range(3)]
        assert loaded.open_sessions() == 3
        assert all(session.startswith("pod-1.") for session in created)
        await client.delete(f"/sessions/{created[0]}")
        assert loaded.open_sessions() == 2
        chat = {"messages": [{"role": "user", "content": "hi"}]}
        url = f"/sessions/{created[1]}/v1/chat/completions"
        assert (await client.post(url, json=chat)).status_code == 200


async def test_tombstones_are_as_many_as_the_setting_says():
    loaded = load_app(group_of({"SESSIONS_ENGINE_URL": "sim:", "SESSIONS_TOMBSTONES": "1"}), 0)
    async with client_of(loaded) as client:
        created = [(await client.post("/sessions")).json()["session_id"] for _ in range(2)]
        for session in created:
            await client.delete(f"/sessions/{session}")
        statuses = [(await client.get(f"/sessions/{session}")).status_code for session in created]
        assert statuses == [404, 410]


def test_a_matcher_that_cannot_be_loaded_stops_the_start_in_one_line():
    environ = {"SESSIONS_ENGINE_URL": "sim:", "SESSIONS_MATCHER": "json:nothing"}
    with pytest.raises(SettingsError, match=r"^SESSIONS_MATCHER='json:nothing' is refused: "):
        load_app(group_of(environ), 0)


async def test_the_sessions_have_the_matcher_of_the_setting():
    environ = {
        "SESSIONS_ENGINE_URL": "sim:",
        "SESSIONS_MATCHER": "tests.support.own_matchers:raises",
    }
    loaded = load_app(group_of(environ), 0)
    async with client_of(loaded) as client:
        session = (await client.post("/sessions")).json()["session_id"]
        body = {"messages": [{"role": "user", "content": "hi"}]}
        url = f"/sessions/{session}/v1/chat/completions"
        assert (await client.post(url, json=body)).status_code == 200
        refused = await client.post(url, json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (500, "matcher_failed")


def test_another_application_is_called_by_its_name():
    loaded = load_app(group_of({"SESSIONS_APP": "tests.support.apps:trivial"}), 0)
    assert callable(loaded.asgi)
    assert type(loaded.asgi) is type(trivial())
    assert loaded.open_sessions() == 0


def test_an_application_has_rollouts_and_halts_unless_it_says_otherwise():
    for environ in (
        {"SESSIONS_ENGINE_URL": "sim:"},
        {"SESSIONS_APP": "tests.support.apps:trivial"},
    ):
        loaded = load_app(group_of(environ), 0)
        assert (loaded.kinds, loaded.goes_on) == ((ROLLOUT,), False)


def test_a_tool_environment_has_episodes_and_goes_on():
    environ = {"SESSIONS_APP": ENVIRONMENT, "SESSIONS_EPISODE_HEADER": "X-Own"}
    group = group_of(environ)
    loaded = load_app(group, 0)
    kinds = (episode_kind("X-Own", group.run_secret), EPISODE_STOPS)
    assert (loaded.kinds, loaded.goes_on) == (kinds, True)


async def test_a_resources_environment_has_seeded_sessions_and_goes_on():
    environ = {
        "SESSIONS_APP": "tests.support.resources_app:CounterResources",
    }
    loaded = load_app(group_of(environ), 0)
    kinds = CounterResources(context_of()).session_kinds
    assert kinds_to_text(loaded.kinds) == kinds_to_text(kinds)
    assert loaded.goes_on
    async with client_of(loaded) as client:
        assert (await client.post("/seed_session", json={})).status_code == 200
        assert loaded.open_sessions() == 1
        await loaded.sweep()
        assert loaded.open_sessions() == 0


def test_a_context_has_what_the_operator_says_of_sessions():
    environ = {"SESSIONS_SESSION_TTL_S": "77", "SESSIONS_TOMBSTONES": "5"}
    context = _context_of(group_of(environ | {"SESSIONS_APP": ENVIRONMENT}), 0, LocalClaims())
    assert (context.session_ttl_s, context.tombstones) == (77.0, 5)


def test_an_application_that_holds_its_sessions_gets_the_claims_of_its_shard():
    claims = LocalClaims()
    group = group_of({"SESSIONS_APP": "tests.support.claiming_app:ClaimingApp"})
    loaded = load_app(group, 0, claims)
    assert isinstance(loaded.asgi, ClaimingApp)
    assert loaded.asgi._claims is claims
    assert (loaded.kinds, loaded.goes_on) == ((KIND, VISITS), False)


def test_a_kind_that_no_router_can_have_is_refused(monkeypatch: pytest.MonkeyPatch):
    naming = HeaderNaming(name=b"x", under="/", reader=lambda _value: None)
    own = SessionKind(name="own", ownership=Ownership.CLAIM, headers=(naming,))
    monkeypatch.setattr(ClaimingApp, "session_kinds", (own,))
    with pytest.raises(SettingsError, match="no reader that a router knows"):
        load_app(group_of({"SESSIONS_APP": "tests.support.claiming_app:ClaimingApp"}), 0)


ENVIRONMENT = "tests.support.episodes:HeldEnvironment"


async def test_a_tool_environment_is_made_with_what_its_shard_knows(
    monkeypatch: pytest.MonkeyPatch,
):
    made: list[HeldEnvironment] = []
    start = HeldEnvironment.__init__

    def noted(self: HeldEnvironment, context: ToolContext) -> None:
        start(self, context)
        made.append(self)

    monkeypatch.setattr(HeldEnvironment, "__init__", noted)
    environ = {
        "SESSIONS_APP": ENVIRONMENT,
        "SESSIONS_SHARDS": "4",
        "SESSIONS_MAX_EPISODES": "11",
        "SESSIONS_CLEANUP_S": "7",
        "SESSIONS_EPISODE_HEADER": "X-Episode",
    }
    claims = LocalClaims()
    loaded = load_app(group_of(environ), 3, claims)
    (context,) = [environment.context for environment in made]
    assert (context.shard_index, context.shards, context.claims) == (3, 4, claims)
    assert context.max_episodes == 2, "an even share, rounded down"
    assert (context.cleanup_s, context.episode_header) == (7.0, "X-Episode")
    assert context.run_secret == group_of(environ).run_secret
    assert loaded.goes_on
    assert [kind.name for kind in loaded.kinds] == ["episode", "episode"]


@pytest.mark.parametrize(
    ("public_url", "base_url"), [("", "http://here:1"), ("https://there", "https://there")]
)
async def test_grants_begin_with_the_public_url_or_with_where_the_server_was_reached(
    public_url: str, base_url: str
):
    loaded = load_app(group_of({"SESSIONS_APP": ENVIRONMENT, "SESSIONS_PUBLIC_URL": public_url}), 0)
    async with client_of(loaded) as client:
        run = asyncio.create_task(
            client.post("/run", json={"rollout_id": "r"}, headers={"host": "here:1"})
        )
        await wait_until_async(lambda: loaded.open_sessions() == 1, "the episode runs")
        environment = environment_of(loaded)
        await wait_until_async(lambda: "r" in environment.held, "its tools are served")
        grants = environment.held["r"].grants
        assert grants.direct_http.base_url == base_url
        assert grants.mcp.url == f"{base_url}/mcp"
        assert list(grants.mcp.headers) == [HEADER]
        await loaded.sweep()
        assert (await run).status_code == 503
        assert loaded.open_sessions() == 0
        assert environment.cleaned == ["r"]


def environment_of(loaded: LoadedApp) -> HeldEnvironment:
    """The environment behind an application, by its bound method."""
    found: HeldEnvironment = loaded.sweep.__self__  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(("most", "is_refused"), [("3", True), ("4", False)])
def test_fewer_episodes_than_shards_are_refused_by_name(most: str, *, is_refused: bool):
    environ = {"SESSIONS_SHARDS": "4", "SESSIONS_MAX_EPISODES": most, "SESSIONS_APP": "a:b"}
    settings = read_settings(environ)
    if not is_refused:
        check_app_settings(settings)
        return
    with pytest.raises(SettingsError, match="SESSIONS_MAX_EPISODES=3 is refused"):
        check_app_settings(settings)


@pytest.mark.parametrize(
    "name",
    [
        "nowhere:app",
        "tests.nowhere:app",
        "tests.support.apps",
        "tests.support.apps:",
        "tests.support.apps:PIECE_BYTES",
        ":x",
        "tests.support.apps:nothing",
    ],
)
def test_an_application_that_cannot_be_loaded_is_refused_by_name(name: str):
    with pytest.raises(SettingsError, match="SESSIONS_APP="):
        load_app(group_of({"SESSIONS_APP": name}), 0)


def test_a_tokenizer_that_cannot_be_loaded_is_named_with_its_setting():
    environ = {"SESSIONS_ENGINE_URL": "sim:", "SESSIONS_TOKENIZER": "pkg:nothing"}
    with pytest.raises(SettingsError) as caught:
        load_app(group_of(environ), 0)
    assert str(caught.value).startswith("SESSIONS_TOKENIZER='pkg:nothing' is refused: tokenizer ")


@pytest.mark.parametrize("fault", ["import", "call"])
def test_an_application_that_fails_is_named_in_one_line_and_traced_in_the_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: str,
):
    text = "1 / 0" if fault == "import" else "def make():\n    return 1 / 0\n"
    (tmp_path / f"failing_{fault}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingsError) as caught:
        load_app(group_of({"SESSIONS_APP": f"failing_{fault}:make"}), 0)
    assert str(caught.value) == (
        f"SESSIONS_APP='failing_{fault}:make' cannot be loaded: ZeroDivisionError: division by zero"
    )
    (record,) = caplog.records
    assert record.exc_info is not None


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({}, "SESSIONS_ENGINE_URL"),
        ({"SESSIONS_TOKENIZER": "pkg:qwen3"}, "SESSIONS_ENGINE_URL"),
        ({"SESSIONS_ENGINE_URL": "http://engine:30000"}, "SESSIONS_TOKENIZER"),
    ],
)
def test_a_missing_setting_is_named_before_anything_is_loaded(environ: dict[str, str], named: str):
    with pytest.raises(SettingsError, match=named) as caught:
        check_app_settings(read_settings(environ))
    with pytest.raises(SettingsError) as loaded:
        load_app(group_of(environ), 0)
    assert str(caught.value) == str(loaded.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "environ",
    [
        {"SESSIONS_ENGINE_URL": "sim:?latency_s=1"},
        {"SESSIONS_ENGINE_URL": "https://e/v1", "SESSIONS_TOKENIZER": "pkg:qwen3"},
        {"SESSIONS_APP": "a:b"},
    ],
)
def test_settings_that_are_complete_pass_the_check(environ: dict[str, str]):
    check_app_settings(read_settings(environ))


@pytest.mark.parametrize(
    "environ",
    [
        {"SESSIONS_ENGINE_URL": "sim:", "SESSIONS_TOKENIZER": "pkg:nothing"},
        {"SESSIONS_ENGINE_URL": "sim:", "SESSIONS_TITO_FAMILY": "nothing"},
        {"SESSIONS_ENGINE_URL": "sim:?nothing=1"},
    ],
)
def test_what_a_setting_names_must_be_there(environ: dict[str, str]):
    with pytest.raises(SettingsError):
        load_app(group_of(environ), 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PUBLIC_URL", "example.com"),
        ("PUBLIC_URL", "http://example.com/?x=1"),
        ("PUBLIC_URL", "http://example.com:port"),
        ("APP", "package.module"),
        ("APP", "package.module:"),
        ("APP", ":make_app"),
        ("APP", "package/module.py:make_app"),
        ("APP", "package.module:make:app"),
        ("TITO_FAMILY", "qwen"),
        ("ENGINE_URL", "engine:30000"),
        ("ENGINE_URL", "ftp://engine"),
        ("ENGINE_TIMEOUT_S", "0"),
        ("ROUTING_KEY_HEADER", "x key"),
        ("ROUTING_REPLAY", "yes"),
        ("TOMBSTONES", "0"),
    ],
)
def test_a_setting_out_of_its_range_is_refused_by_name(name: str, value: str):
    with pytest.raises(SettingsError, match=f"SESSIONS_{name}="):
        read_settings({f"SESSIONS_{name}": value})


def test_checking_the_settings_loads_nothing_heavy():
    code = (
        "import sys, sessions.settings as s;"
        "s.check_app_settings(s.read_settings({'SESSIONS_ENGINE_URL': 'sim:'}));"
        "print([n for n in ('httpx', 'orjson', 'starlette', 'sessions.core', 'asyncio') "
        "if n in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_rollout_server_is_loaded_without_numpy_and_without_the_simulated_engine():
    code = (
        "import sys, sessions.shard.rollouts;"
        "print([n for n in ('numpy', 'uvicorn', 'gunicorn', 'sessions.sim', 'torch') "
        "if n in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
