"""Which gunicorn options are refused, and what their reasons say."""

import signal

import pytest
from gunicorn.arbiter import Arbiter
from gunicorn.config import KNOWN_SETTINGS, Config
from gunicorn.workers.base import Worker

from sessions.chassis import refusals
from sessions.chassis.refusals import (
    FAREWELL_S,
    REFUSED_SIGNALS,
    daemon_refusal,
    refused_settings,
    refused_worker_class,
    stop_limit_s,
    wants_daemon,
)
from sessions.settings import Settings

_SETTINGS = Settings(shards=2, graceful_s=7, drain_delay_s=2.5, timeout_s=9)
_APP = "the:app"


def _cfg(**values: object) -> Config:
    cfg = Config()
    ours = {
        "workers": 3,
        "timeout": 9,
        "graceful_timeout": 10 + FAREWELL_S,
        "control_socket_disable": True,
        "wsgi_app": _APP,
    }
    for name, value in (ours | values).items():
        cfg.set(name, value)
    return cfg


def _reasons(environ: dict[str, str] | None = None, **values: object) -> list[str]:
    return refused_settings(_cfg(**values), _SETTINGS, environ or {}, app_uri=_APP)


def test_nothing_is_refused_in_our_own_configuration():
    assert _reasons() == []


@pytest.mark.parametrize(
    ("name", "value", "option", "instead"),
    [
        ("workers", 5, "--workers 5", "SESSIONS_SHARDS"),
        ("timeout", 0, "--timeout 0", "SESSIONS_TIMEOUT_S"),
        ("graceful_timeout", 9, "--graceful-timeout 9", "SESSIONS_GRACEFUL_S"),
        ("preload_app", True, "--preload", "leave it out"),
        ("max_requests", 1, "--max-requests", "leave it out"),
        ("reload", True, "--reload", "restart"),
        ("reuse_port", True, "--reuse-port", "leave it out"),
        ("daemon", True, "--daemon", "supervisor"),
        ("dirty_workers", 1, "--dirty-workers", "leave it out"),
        ("dirty_apps", ["a:b"], "--dirty-app", "leave it out"),
        ("control_socket_disable", False, "control_socket_disable=False", "set it to True"),
        ("certfile", "c.pem", "--certfile", "ingress"),
        ("keyfile", "k.pem", "--keyfile", "ingress"),
        ("proxy_protocol", "auto", "--proxy-protocol", "plain HTTP/1.1"),
        ("logconfig", "file", "--log-config", "stderr"),
        ("logconfig_json", "file", "--log-config-json", "stderr"),
        ("syslog", True, "--log-syslog", "stderr"),
        ("paste", "file", "--paste", "SESSIONS_APP"),
        ("bind", ["127.0.0.1:65536", "[::]:65535", "unix:/s"], "--bind 127.0.0.1:65536", "65535"),
        ("raw_env", ["SESSIONS_SHARDS=3"], "--env SESSIONS_SHARDS", "in the environment"),
    ],
)
def test_a_harmful_option_is_named_and_answered(
    name: str, value: object, option: str, instead: str
):
    (reason,) = refused_settings(_cfg(**{name: value}), _SETTINGS, {}, app_uri=_APP)
    found, _, why = reason.partition(": ")
    assert found == option
    assert instead in why


def test_every_refused_switch_is_an_option_of_this_gunicorn():
    known = {setting.name for setting in KNOWN_SETTINGS}
    assert set(refusals._SWITCHES) <= known


def test_all_reasons_are_told_at_once():
    assert len(_reasons({"WEB_CONCURRENCY": "2"}, workers=9, reload=True, preload_app=True)) == 4


def test_web_concurrency_is_refused_even_though_it_is_overruled():
    (reason,) = _reasons({"WEB_CONCURRENCY": "3"})
    assert reason.startswith("WEB_CONCURRENCY=3: ")
    assert "1 router and 2 shard(s)" in reason


def test_a_lone_shard_is_told_of_no_router():
    cfg = _cfg(workers=3)
    (reason,) = refused_settings(cfg, Settings(graceful_s=10, timeout_s=9), {}, app_uri=_APP)
    assert reason == (
        "--workers 3: the group is made of 1 shard(s), so 1 worker(s); set SESSIONS_SHARDS instead"
    )


def test_variables_of_others_may_be_set_with_env():
    assert _reasons(raw_env=["OMP_NUM_THREADS=1"]) == []


def test_an_application_on_the_command_line_is_refused():
    (reason,) = refused_settings(_cfg(), _SETTINGS, {}, app_uri="my:app")
    assert reason == "application my:app: it would be ignored; set SESSIONS_APP instead"


class _Ours(Worker):
    pass


class _Derived(_Ours):
    pass


def test_only_our_worker_class_and_its_children_are_accepted():
    assert refused_worker_class(_Ours, _Ours) == []
    assert refused_worker_class(_Derived, _Ours) == []
    (reason,) = refused_worker_class(Worker, _Ours)
    assert reason.startswith("--worker-class Worker: ")


@pytest.mark.parametrize(
    ("argv", "cmd_args", "wanted"),
    [
        ([], "", False),
        (["-c", "gunicorn_conf.py", "--bind", ":0"], "", False),
        (["-D"], "", True),
        (["--daemon"], "", True),
        (["--daem"], "", True),  # the parser takes any clear beginning
        ([], "--daemon", True),
        ([], "--workers 2 -D", True),
        (["--name", "daemon"], "", False),
    ],
)
def test_a_daemon_is_noticed_in_every_form(argv: list[str], cmd_args: str, *, wanted: bool):
    environ = {"GUNICORN_CMD_ARGS": cmd_args} if cmd_args else {}
    assert wants_daemon(["gunicorn", *argv], environ) is wanted


def test_the_refusal_of_a_daemon_names_the_option():
    assert daemon_refusal().startswith("--daemon: ")


def test_a_stop_may_take_the_drain_delay_the_graceful_limit_and_the_farewell():
    assert stop_limit_s(_SETTINGS) == 10 + FAREWELL_S


def test_every_signal_that_resizes_or_replaces_is_refused_and_no_other():
    kept = {"INT", "TERM", "QUIT", "USR1"}
    handled = {signal.Signals(number).name.removeprefix("SIG") for number in Arbiter.SIGNALS}
    assert set(REFUSED_SIGNALS) == handled - kept
