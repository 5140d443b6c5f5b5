"""Settings: the environment variables `SESSIONS_*`, read once into one frozen dataclass.

`read_settings` parses and checks every variable and refuses an unknown one by name, so a typing
error stops the start instead of being ignored. Nothing else in the package reads the environment.

Spec: docs/settings.md
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Final, TypeVar
from urllib.parse import urlsplit

from sessions.errors.unseen import SettingsError

PREFIX: Final = "SESSIONS_"
# A test compares with sessions/tokens/families.
MATCHERS: Final = ("strict", "loose_tool_call", "role_content_only")
TITO_FAMILIES: Final = (
    "auto",
    "qwen3",
    "qwen35",
    "qwennext",
    "nemotron3",
    "glm47",
    "kimi25",
    "kimi26",
    "minimax_m25",
    "minimax_m27",
    "deepseekv32",
    "deepseekv4",
    "inkling",
    "default",
)
ENGINE_DIALECTS: Final = ("auto", "sglang", "vllm")  # a test compares with core/dialects
ECHO_REQUIRED: Final = "required"
SESSION_MODES: Final = (
    "linear",
    "tree",
)  # a test compares with core/open_sessions/session_options.py
SIMULATED_ENGINE: Final = "sim:"
_ID_PREFIX_MAX: Final = 64
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")  # RFC 9110 section 5.6.2

_T = TypeVar("_T")


class RouterMode(enum.Enum):
    """When a router stands before the shards."""

    AUTO = "auto"
    ALWAYS = "always"


class ExitPolicy(enum.Enum):
    """What the end of a shard means for its group; no shard is ever respawned."""

    APP = "app"  # what the application would choose
    HALT = "halt"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One value per environment variable; the field name is the variable's without its prefix."""

    shards: int = 1
    router: RouterMode = RouterMode.AUTO
    bind: str = "127.0.0.1:8000"
    public_url: str = ""
    app: str = ""
    engine_url: str = ""
    engine_api_key: str = ""
    engine_dialect: str = "auto"
    prompt_echo: str = ECHO_REQUIRED
    engine_timeout_s: float = 3600.0
    engine_connect_timeout_s: float = 5.0
    routing_key_header: str = "X-SMG-Routing-Key"
    routing_replay: bool = False
    replay_layers: int = 0
    replay_incremental: bool = False
    replay_budget_bytes: int = 0
    ingest_budget_bytes: int = 1 << 30
    spool_dir: str = ""
    tokenizer: str = ""
    tito_family: str = "auto"
    mode: str = "linear"
    max_tree_turns: int = 1024
    sample_picker: str = ""
    sample_post_processor: str = ""
    max_turns: int = 0
    max_session_tokens: int = 0
    matcher: str = "strict"
    cancel_on_disconnect: bool = False
    sse_keepalive_s: float = 3.0
    episode_header: str = "X-NeMo-Gym-Episode-Token"
    max_episodes: int = 4096
    cleanup_s: float = 10.0
    mcp_replies: str = "json"
    mcp_allowed_hosts: str = ""
    on_shard_exit: ExitPolicy = ExitPolicy.APP
    timeout_s: int = 60
    boot_deadline_s: float = 60.0
    graceful_s: int = 30
    drain_delay_s: float = 0.0
    max_connections: int = 8192
    parked_connections: int = 4096
    head_bytes: int = 65536
    head_timeout_s: float = 15.0
    idle_timeout_s: float = 75.0
    body_bytes: int = 268435456
    body_timeout_s: float = 60.0
    tombstones: int = 16384
    session_ttl_s: float = 86400.0
    runtime_dir: str = ""
    log_format: str = "text"
    id_prefix: str = ""

    @property
    def engine_urls(self) -> tuple[str, ...]:
        """The engines' base URLs; one alone for the simulated engine, whose options have commas."""
        if self.engine_url.startswith(SIMULATED_ENGINE):
            return (self.engine_url,)
        return tuple(self.engine_url.split(",")) if self.engine_url else ()

    @property
    def mcp_hosts(self) -> frozenset[str]:
        """The hosts that MCP requests may be addressed to; empty for any."""
        return frozenset(filter(None, self.mcp_allowed_hosts.split(",")))

    @property
    def has_router(self) -> bool:
        """Whether a router worker stands before the shards."""
        return self.shards > 1 or self.router is RouterMode.ALWAYS

    @property
    def worker_count(self) -> int:
        """Gunicorn workers of the group: the shards, and the router if there is one."""
        return self.shards + (1 if self.has_router else 0)


def variable_of(field: str) -> str:
    """The environment variable that sets a field of `Settings`."""
    return PREFIX + field.upper()


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read and check all settings.

    Args:
        environ: Names to values; an empty value counts as unset.

    Returns:
        The settings, each within its range.

    Raises:
        SettingsError: A value is out of its range or not of its type, or a variable with our
            prefix is unknown. The message names the variable and says what is allowed.
    """
    known = {variable_of(field.name): field.name for field in fields(Settings)}
    unknown = sorted(n for n in environ if n.startswith(PREFIX) and n not in known)
    if unknown:
        raise SettingsError(f"unknown setting {', '.join(unknown)} (see docs/settings.md)")
    values = {
        field: _parse(name, environ[name], _PARSERS.get(field, str))
        for name, field in known.items()
        if environ.get(name)
    }
    return Settings(**values)  # type: ignore[arg-type]


def check_app_settings(settings: Settings) -> None:
    """Refuse settings with which the rollout server cannot start.

    Pure and cheap, so that the arbiter can call it before the forks. What needs files or libraries
    (whether the tokenizer loads) is found by the shards.

    Args:
        settings: As read. With `SESSIONS_APP` set no engine is needed.

    Raises:
        SettingsError: The engine or the tokenizer is not named, or there are fewer episodes than
            shards; the message names the variable.
    """
    if settings.max_episodes < settings.shards:
        raise SettingsError(
            f"SESSIONS_MAX_EPISODES={settings.max_episodes} is refused:"
            f" less than one for each of {settings.shards} shards"
        )
    if settings.app:
        return
    if not settings.engine_url:
        raise SettingsError(
            "SESSIONS_ENGINE_URL is not set: give the engine's base URL,"
            f" or {SIMULATED_ENGINE!r} for the simulated engine"
        )
    if not settings.tokenizer and not settings.engine_url.startswith(SIMULATED_ENGINE):
        raise SettingsError(
            "SESSIONS_TOKENIZER is not set: give a folder with a tokenizer.json, or pkg:qwen3"
        )


def _parse(name: str, text: str, parse: Callable[[str], _T]) -> _T:
    try:
        return parse(text)
    except ValueError as error:
        raise SettingsError(f"{name}={text!r} is refused: {error}") from None


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return int(text)

    return parse


def _seconds(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not low <= value <= high:
            raise ValueError(f"expected seconds from {low:g} to {high:g}")
        return value

    return parse


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"expected one of {', '.join(allowed)}")
        return text

    return parse


def _flag(text: str) -> bool:
    return _one_of("0", "1")(text) == "1"


def _router_mode(text: str) -> RouterMode:
    return RouterMode(_one_of(*(mode.value for mode in RouterMode))(text))


def _base_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("expected a URL like http://host:port without query")
    _ = parts.port  # raises ValueError when it is no port
    return text.rstrip("/")


def _hosts(text: str) -> str:
    hosts = [host.strip().lower() for host in text.split(",")]
    if not all(re.fullmatch(r"(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", h) for h in hosts):
        raise ValueError("expected hosts with or without a port, separated by commas")
    return ",".join(hosts)


def _engine_url(text: str) -> str:
    if text.startswith(SIMULATED_ENGINE):
        return text
    return ",".join(_base_url(url.strip()) for url in text.split(","))


def _app(text: str) -> str:
    module, _, attribute = text.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), attribute]):
        raise ValueError("expected module:callable, such as package.module:make_app")
    return text


def _matcher(text: str) -> str:
    try:
        return text if text in MATCHERS else _app(text)
    except ValueError:
        raise ValueError(
            f"expected one of {', '.join(MATCHERS)}, or module:function of your own"
        ) from None


def _header_name(text: str) -> str:
    if not _HEADER_NAME.fullmatch(text):
        raise ValueError("expected the name of an HTTP header")
    return text


def _exit_policy(text: str) -> ExitPolicy:
    return ExitPolicy(_one_of(*(policy.value for policy in ExitPolicy))(text))


def _id_prefix(text: str) -> str:
    if len(text) > _ID_PREFIX_MAX or not re.fullmatch(r"[A-Za-z0-9._~-]*", text):
        raise ValueError("expected at most 64 characters of A-Z a-z 0-9 . _ ~ -")
    return text


_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    "shards": _whole(1, 256),
    "router": _router_mode,
    "public_url": _base_url,
    "app": _app,
    "tito_family": _one_of(*TITO_FAMILIES),
    "engine_url": _engine_url,
    "engine_dialect": _one_of(*ENGINE_DIALECTS),
    "prompt_echo": _one_of(ECHO_REQUIRED, "optional"),
    "engine_timeout_s": _seconds(0.1, 604800),
    "engine_connect_timeout_s": _seconds(0.1, 3600),
    "routing_key_header": _header_name,
    "routing_replay": _flag,
    "replay_layers": _whole(0, 65536),
    "replay_incremental": _flag,
    "replay_budget_bytes": _whole(0, 1 << 50),
    "ingest_budget_bytes": _whole(1 << 20, 1 << 50),
    "mode": _one_of(*SESSION_MODES),
    "max_tree_turns": _whole(1, 65536),
    "sample_picker": _app,
    "sample_post_processor": _app,
    "max_turns": _whole(0, 1 << 50),
    "max_session_tokens": _whole(0, 1 << 50),
    "matcher": _matcher,
    "cancel_on_disconnect": _flag,
    "sse_keepalive_s": _seconds(0.05, 3600),
    "episode_header": _header_name,
    "max_episodes": _whole(1, 1_000_000),
    "cleanup_s": _seconds(0.1, 3600),
    "mcp_replies": _one_of("json", "sse"),
    "mcp_allowed_hosts": _hosts,
    "on_shard_exit": _exit_policy,
    "timeout_s": _whole(2, 86400),
    "boot_deadline_s": _seconds(1, 86400),
    "graceful_s": _whole(1, 86400),
    "drain_delay_s": _seconds(0, 3600),
    "max_connections": _whole(1, 1_000_000),
    "parked_connections": _whole(1, 1_000_000),
    "head_bytes": _whole(1024, 1 << 20),
    "head_timeout_s": _seconds(0.1, 3600),
    "idle_timeout_s": _seconds(0.1, 86400),
    "body_bytes": _whole(1024, 1 << 40),
    "body_timeout_s": _seconds(0.1, 86400),
    "tombstones": _whole(1, 1 << 24),
    "session_ttl_s": _seconds(1, 31536000),
    "log_format": _one_of("text", "json"),
    "id_prefix": _id_prefix,
}
