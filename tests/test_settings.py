"""Settings: read from the environment, refused by name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from sessions.errors.unseen import SettingsError
from sessions.settings import (
    RouterMode,
    Settings,
    check_app_settings,
    read_settings,
    variable_of,
)

PREFIX_64 = "p" * 64


def test_nothing_set_gives_the_defaults():
    assert read_settings({}) == Settings()


def test_variables_without_the_prefix_are_ignored():
    assert read_settings({"PATH": "/bin", "WEB_CONCURRENCY": "3"}) == Settings()


def test_an_empty_value_counts_as_unset():
    empty = {variable_of(field.name): "" for field in fields(Settings)}
    assert read_settings(empty) == Settings()


def test_unknown_settings_are_refused_by_name():
    with pytest.raises(SettingsError, match="unknown setting SESSIONS_A, SESSIONS_SHARD "):
        read_settings({"SESSIONS_SHARD": "1", "SESSIONS_A": ""})


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("shards", "256", 256),
        ("router", "always", RouterMode.ALWAYS),
        ("bind", "[::]:80", "[::]:80"),
        ("public_url", "https://a.b/c/", "https://a.b/c"),
        ("app", "a_b.c:d", "a_b.c:d"),
        ("tito_family", "default", "default"),
        ("engine_url", "http://e:1/v1", "http://e:1/v1"),
        ("engine_url", "sim:?layers=3", "sim:?layers=3"),
        ("engine_url", "http://e:1/, https://[::1]:2", "http://e:1,https://[::1]:2"),
        ("engine_timeout_s", "0.1", 0.1),
        ("routing_key_header", "X-Key", "X-Key"),
        ("routing_replay", "1", True),
        ("cancel_on_disconnect", "0", False),
        ("graceful_s", "1", 1),
        ("drain_delay_s", "0", 0.0),
        ("mcp_replies", "sse", "sse"),
        ("mcp_allowed_hosts", "A.b, [::1]:80,c:1", "a.b,[::1]:80,c:1"),
        ("log_format", "json", "json"),
        ("id_prefix", PREFIX_64, PREFIX_64),
    ],
)
def test_a_value_becomes_the_field_of_its_variable(field: str, text: str, value: object):
    assert getattr(read_settings({variable_of(field): text}), field) == value


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("shards", "0"),
        ("shards", "257"),
        ("shards", "+1"),
        ("shards", "1.0"),
        ("shards", "\u0663"),  # a digit, but not one of ours
        ("router", "never"),
        ("public_url", "ftp://a"),
        ("public_url", "http://"),
        ("public_url", "http://a?b"),
        ("public_url", "http://a#b"),
        ("engine_url", "engine:30000"),
        ("engine_url", "http://e:port"),
        ("engine_url", "http://e:1,"),
        ("engine_url", "http://e:1,sim:"),
        ("engine_timeout_s", "0.05"),
        ("engine_timeout_s", "nan"),
        ("engine_timeout_s", "inf"),
        ("engine_timeout_s", "soon"),
        ("routing_key_header", "a b"),
        ("routing_key_header", "n" * 65),
        ("routing_replay", "yes"),
        ("graceful_s", "1.5"),
        ("mcp_replies", "both"),
        ("mcp_allowed_hosts", "http://a"),
        ("mcp_allowed_hosts", "a,,b"),
        ("mcp_allowed_hosts", "a:*"),
        ("mcp_allowed_hosts", "::1"),
        ("log_format", "xml"),
        ("id_prefix", "a/b"),
        ("id_prefix", PREFIX_64 + "p"),
    ],
)
def test_a_value_out_of_its_range_is_refused_by_variable_and_value(field: str, text: str):
    with pytest.raises(SettingsError) as caught:
        read_settings({variable_of(field): text})
    line = str(caught.value)
    assert line.startswith(f"{variable_of(field)}={text!r} is refused: ")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("url", "urls"),
    [
        ("", ()),
        ("http://a", ("http://a",)),
        ("http://a,http://b:1/v1", ("http://a", "http://b:1/v1")),
        ("sim:?layers=3,4", ("sim:?layers=3,4",)),
    ],
)
def test_engines_are_separated_by_commas_but_the_simulated_one_is_alone(
    url: str, urls: tuple[str, ...]
):
    assert Settings(engine_url=url).engine_urls == urls


@pytest.mark.parametrize(
    ("given", "has_router", "worker_count"),
    [
        ({}, False, 1),
        ({"shards": 2}, True, 3),
        ({"router": RouterMode.ALWAYS}, True, 2),
        ({"shards": 4, "router": RouterMode.ALWAYS}, True, 5),
    ],
)
def test_a_router_stands_before_many_shards_or_where_it_is_asked_for(
    given: dict[str, Any], *, has_router: bool, worker_count: int
):
    settings = Settings(**given)
    assert settings.has_router is has_router
    assert settings.worker_count == worker_count


@pytest.mark.parametrize(
    "given",
    [
        {"engine_url": "sim:"},
        {"engine_url": "http://e", "tokenizer": "pkg:qwen3"},
        {"app": "a:b"},
    ],
)
def test_settings_that_the_rollout_server_can_start_with_pass(given: dict[str, Any]):
    check_app_settings(Settings(**given))


@pytest.mark.parametrize(
    ("given", "variable"),
    [
        ({}, "SESSIONS_ENGINE_URL"),
        ({"tokenizer": "pkg:qwen3"}, "SESSIONS_ENGINE_URL"),
        ({"engine_url": "http://e"}, "SESSIONS_TOKENIZER"),
    ],
)
def test_what_the_rollout_server_lacks_is_refused_by_name(given: dict[str, Any], variable: str):
    with pytest.raises(SettingsError, match=f"^{variable} is not set"):
        check_app_settings(Settings(**given))


def test_no_host_is_named_unless_one_is_allowed():
    assert Settings().mcp_hosts == frozenset()
    hosts = read_settings({"SESSIONS_MCP_ALLOWED_HOSTS": "A, b:1"}).mcp_hosts
    assert hosts == {"a", "b:1"}
