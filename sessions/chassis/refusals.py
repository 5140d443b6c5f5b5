"""Refusals: what gunicorn can be told that a group cannot do, and why.

Pure functions from gunicorn's final configuration, the environment and the command line to
reasons. Gunicorn would accept each of these and break the group, or ignore it in silence; so the
start is refused, and each reason says what was found, why it is refused and what to do instead.

Spec: docs/settings.md#refused-gunicorn-settings
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gunicorn.config import Config

from sessions.settings import PREFIX, Settings

_FIXED: Final = "a group is never resized, reloaded or respawned"
_PORT_MAX: Final = 65535
FAREWELL_S: Final = 2  # for members to answer what is overdue and to end; a guess, takes 1 s
_ONE_STREAM: Final = "all processes write one log stream on stderr; redirect that"

# Setting -> (its name for the operator, whether its value is harmful, why and what instead).
_SWITCHES: Final[Mapping[str, tuple[str, Callable[[object], bool], str]]] = {
    "preload_app": (
        "--preload",
        bool,
        "shards load their app after the fork, the router none at all; leave it out",
    ),
    "max_requests": (
        "--max-requests",
        bool,
        "a shard that ends takes its sessions and the group with it; leave it out",
    ),
    "reload": ("--reload", bool, f"{_FIXED}; restart the group instead"),
    "reuse_port": (
        "--reuse-port",
        bool,
        "only the router accepts, or requests would miss their sessions; leave it out",
    ),
    "daemon": (
        "--daemon",
        bool,
        "its parent exits 0 before anything was checked; use a supervisor or nohup",
    ),
    "dirty_workers": ("--dirty-workers", bool, "no member of a group uses them; leave it out"),
    "dirty_apps": ("--dirty-app", bool, "no member of a group uses them; leave it out"),
    "control_socket_disable": (
        "control_socket_disable=False",
        lambda disabled: not disabled,
        f"its commands resize and reload, and {_FIXED}; set it to True",
    ),
    "certfile": (
        "--certfile",
        bool,
        "a connection is lent between processes, TLS cannot be; let an ingress terminate it",
    ),
    "keyfile": ("--keyfile", bool, "see --certfile; let an ingress terminate TLS"),
    "proxy_protocol": (
        "--proxy-protocol",
        lambda mode: mode not in (False, None, "off"),
        "the PROXY protocol is not spoken; let the proxy send plain HTTP/1.1",
    ),
    "logconfig": ("--log-config", bool, f"it would be ignored: {_ONE_STREAM}"),
    "logconfig_json": ("--log-config-json", bool, f"it would be ignored: {_ONE_STREAM}"),
    "syslog": ("--log-syslog", bool, f"it would be ignored: {_ONE_STREAM}"),
    "paste": ("--paste", bool, "the app is chosen with SESSIONS_APP"),
}

REFUSED_SIGNALS: Final[Mapping[str, str]] = {
    "HUP": f"{_FIXED}; restart it to change its settings, send SIGUSR1 to reopen its logs",
    "TTIN": f"{_FIXED}; restart it with another SESSIONS_SHARDS",
    "TTOU": f"{_FIXED}; restart it with another SESSIONS_SHARDS",
    "USR2": "two groups cannot share their sessions; stop this one and start the other",
    "WINCH": f"{_FIXED}; stop it with SIGTERM",
}


def stop_limit_s(settings: Settings) -> int:
    """How long a graceful stop may take: the drain delay, the graceful limit, the farewell."""
    return settings.graceful_s + math.ceil(settings.drain_delay_s) + FAREWELL_S


def wants_daemon(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether gunicorn was told to become a daemon, on its command line or by GUNICORN_CMD_ARGS.

    Args:
        argv: As in `sys.argv`.
        environ: The environment.
    """
    parser = Config().parser()
    said = [argv[1:], shlex.split(environ.get("GUNICORN_CMD_ARGS", ""))]
    return any(parser.parse_known_args(words)[0].daemon for words in said)


def daemon_refusal() -> str:
    """Why `--daemon` is refused."""
    return _reason("daemon")


def refused_settings(
    cfg: Config, settings: Settings, environ: Mapping[str, str], *, app_uri: str | None
) -> list[str]:
    """All that this configuration asks for and a group cannot do.

    Args:
        cfg: Gunicorn's configuration, final.
        settings: Ours.
        environ: The environment.
        app_uri: The application that gunicorn was told to load.

    Returns:
        One reason each, none if the group may start.
    """
    reasons = [
        _reason(name) for name, (_, harms, _) in _SWITCHES.items() if harms(_value_of(cfg, name))
    ]
    sizes = _refused_sizes(cfg, settings, environ) + _refused_ports(cfg)
    return sizes + reasons + _refused_sources(cfg, app_uri)


def _refused_sizes(cfg: Config, settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """Numbers that gunicorn and the members must agree on."""
    reasons = []
    want = settings.worker_count
    router = "1 router and " if settings.has_router else ""
    made_of = f"the group is made of {router}{settings.shards} shard(s)"
    if cfg.workers != want:
        reasons.append(
            f"--workers {cfg.workers}: {made_of}, so {want} worker(s); set SESSIONS_SHARDS instead"
        )
    if "WEB_CONCURRENCY" in environ:
        reasons.append(
            f"WEB_CONCURRENCY={environ['WEB_CONCURRENCY']}: it would be ignored, {made_of}; "
            "unset it and set SESSIONS_SHARDS"
        )
    for option, found, limit_s, variable in (
        ("--timeout", cfg.timeout, settings.timeout_s, "SESSIONS_TIMEOUT_S"),
        (
            "--graceful-timeout",
            cfg.graceful_timeout,
            stop_limit_s(settings),
            "SESSIONS_GRACEFUL_S and SESSIONS_DRAIN_DELAY_S",
        ),
    ):
        if found != limit_s:
            reasons.append(
                f"{option} {found}: the members count with {limit_s} s; set {variable} instead"
            )
    return reasons


def _refused_ports(cfg: Config) -> list[str]:
    """Ports that no address has; gunicorn would end in a traceback."""
    inet = [address for address in cfg.address if isinstance(address, tuple)]
    return [
        f"--bind {host}:{port}: a port is at most {_PORT_MAX}; set SESSIONS_BIND to another"
        for host, port in inet
        if port > _PORT_MAX
    ]


def _refused_sources(cfg: Config, app_uri: str | None) -> list[str]:
    """Places from which nothing is taken."""
    reasons = []
    if app_uri != cfg.wsgi_app:
        reasons.append(f"application {app_uri}: it would be ignored; set SESSIONS_APP instead")
    late = sorted(name for name in cfg.env if name.startswith(PREFIX))
    if late:
        reasons.append(
            f"--env {', '.join(late)}: settings are read before it is applied; "
            "set them in the environment"
        )
    return reasons


def refused_worker_class(found: type[object], wanted: type[object]) -> list[str]:
    """Why another worker class is refused; nothing if it is ours."""
    if issubclass(found, wanted):
        return []
    return [f"--worker-class {found.__name__}: it knows neither router nor shards; leave it out"]


def _value_of(cfg: Config, name: str) -> object:
    value: object = cfg.settings[name].get()
    return value


def _reason(name: str) -> str:
    option, _, why = _SWITCHES[name]
    return f"{option}: {why}"
