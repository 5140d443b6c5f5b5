"""Which application a shard runs: the rollout server, or the one that `SESSIONS_APP` names.

That is an ASGI application, or a class of an environment, which is given what it needs to serve the
tools of its episodes or of its seeded sessions.

Spec: docs/architecture.md#applications
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeGuard

from starlette.types import ASGIApp

from sessions.errors.unseen import SettingsError
from sessions.lending.group import Group
from sessions.lending.tally import Tally
from sessions.routing.claimed_kinds import EPISODE_STOPS, episode_kind
from sessions.routing.kind_text import kinds_to_text
from sessions.routing.kinds import ROLLOUT, SessionKind
from sessions.settings import SIMULATED_ENGINE, check_app_settings
from sessions.shard.origin import origin_of
from sessions.shard.session_holder import SessionHolder
from sessions.tools.claims import Claims, LocalClaims
from sessions.tools.context import ToolContext
from sessions.tools.mcp_rules import McpRules

if TYPE_CHECKING:
    from sessions.tools.environment import ToolEnvironment
    from sessions.tools.resources_environment import ResourcesEnvironment

logger = logging.getLogger(__name__)

_SIM_TOKENIZER = "pkg:qwen3"
_EPISODES = ("sessions.tools.environment", "ToolEnvironment")
_RESOURCES = ("sessions.tools.resources_environment", "ResourcesEnvironment")


async def _sweep_nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedApp:
    """An application that is ready for its lifespan.

    Attributes:
        asgi: The ASGI 3 application.
        open_sessions: How many sessions it holds now.
        tally_of: What it counts besides, given the state of its lifespan.
        sweep: Ends what requests left to clean up when they were cut; bounded.
        kinds: Of its sessions.
        goes_on: Whether it lives on, by its own default, when another shard dies.
    """

    asgi: ASGIApp
    open_sessions: Callable[[], int]
    tally_of: Callable[[Mapping[str, Any]], Tally]
    sweep: Callable[[], Awaitable[None]] = _sweep_nothing
    kinds: tuple[SessionKind, ...] = (ROLLOUT,)
    goes_on: bool = False


def load_app(group: Group, index: int, claims: Claims | None = None) -> LoadedApp:
    """Load a shard's application; takes as long as its imports and its tokenizer do.

    Args:
        group: Shared state of the group.
        index: The shard.
        claims: Where its episodes are claimed; None for a lone shard's own.

    Returns:
        The application.

    Raises:
        SettingsError: A setting is missing, or what it names cannot be loaded.
    """
    if group.settings.app:
        return _named_app(group, index, claims or LocalClaims())
    return _rollout_app(group, index)


def _rollout_app(group: Group, index: int) -> LoadedApp:
    settings = group.settings
    check_app_settings(settings)
    # Imported only here: another application may do without them.
    from sessions.core.matchers.choice import matcher_of  # noqa: PLC0415 - see above
    from sessions.core.open_sessions.registry import SessionRegistry  # noqa: PLC0415 - see above
    from sessions.routing.ids import mint_session_id  # noqa: PLC0415 - see above
    from sessions.shard.rollouts import rollout_app, tally_of  # noqa: PLC0415 - see above
    from sessions.tokens.prompts import load_prompt_builder  # noqa: PLC0415 - see above

    if settings.engine_url.startswith(SIMULATED_ENGINE):
        from sessions.sim.options import parse_sim_url  # noqa: PLC0415 - see above

        parse_sim_url(settings.engine_url)
    tokenizer = settings.tokenizer or _SIM_TOKENIZER
    try:
        prompts = load_prompt_builder(tokenizer, settings.tito_family)
    except SettingsError as error:
        raise SettingsError(f"SESSIONS_TOKENIZER={tokenizer!r} is refused: {error}") from error
    registry = SessionRegistry(
        lambda: mint_session_id(index, settings.shards, settings.id_prefix),
        tombstones=settings.tombstones,
        matcher=matcher_of(settings.matcher),
    )
    return LoadedApp(
        asgi=rollout_app(group, registry, prompts),
        open_sessions=lambda: len(registry),
        tally_of=tally_of,
    )


def _named_app(group: Group, index: int, claims: Claims) -> LoadedApp:
    name = group.settings.app
    module, _, attribute = name.partition(":")
    try:
        factory = getattr(import_module(module), attribute, None)
        if _is_environment(factory):
            return _environment_app(factory(_context_of(group, index, claims)), group)
        if _is_resources(factory):
            return _resources_app(factory(_context_of(group, index, claims)))
        if callable(factory):
            return _asgi_app(factory(), claims)
    except ModuleNotFoundError as error:
        raise SettingsError(f"SESSIONS_APP={name!r} cannot be loaded: {error}") from error
    except Exception as error:
        logger.exception("application failed to load app=%s", name)
        kind = type(error).__name__
        raise SettingsError(f"SESSIONS_APP={name!r} cannot be loaded: {kind}: {error}") from error
    raise SettingsError(f"SESSIONS_APP={name!r} names nothing that can be called")


def _asgi_app(asgi: ASGIApp, claims: Claims) -> LoadedApp:
    kinds: tuple[SessionKind, ...] = (ROLLOUT,)
    if isinstance(asgi, SessionHolder):
        kinds = tuple(asgi.session_kinds)
        kinds_to_text(kinds)  # raises for a kind that no router can have
        asgi.use_claims(claims)
    return LoadedApp(asgi=asgi, open_sessions=lambda: 0, tally_of=lambda _: Tally(), kinds=kinds)


def _is_environment(found: object) -> TypeGuard[type[ToolEnvironment]]:
    return _is_subclass(found, *_EPISODES)


def _is_resources(found: object) -> TypeGuard[type[ResourcesEnvironment]]:
    return _is_subclass(found, *_RESOURCES)


def _is_subclass(found: object, module: str, name: str) -> bool:
    # Who subclasses it has imported it; for others its imports would be a waste.
    there = sys.modules.get(module)
    return there is not None and isinstance(found, type) and issubclass(found, getattr(there, name))


def _environment_app(environment: ToolEnvironment, group: Group) -> LoadedApp:
    kind = episode_kind(group.settings.episode_header, group.run_secret)
    return LoadedApp(
        asgi=environment.app(),
        open_sessions=lambda: environment.open_episodes,
        tally_of=lambda _: Tally(),
        sweep=environment.sweep,
        kinds=(kind, EPISODE_STOPS),
        goes_on=True,
    )


def _resources_app(environment: ResourcesEnvironment) -> LoadedApp:
    return LoadedApp(
        asgi=environment.app(),
        open_sessions=lambda: environment.open_sessions,
        tally_of=lambda _: Tally(),
        sweep=environment.sweep,
        kinds=tuple(environment.session_kinds),
        goes_on=True,
    )


def _context_of(group: Group, index: int, claims: Claims) -> ToolContext:
    settings = group.settings
    return ToolContext(
        claims=claims,
        run_secret=group.run_secret,
        episode_header=settings.episode_header,
        origin_of=lambda scope: settings.public_url or origin_of(scope, settings.bind),
        shard_index=index,
        shards=settings.shards,
        max_episodes=settings.max_episodes // settings.shards,
        cleanup_s=settings.cleanup_s,
        session_ttl_s=settings.session_ttl_s,
        tombstones=settings.tombstones,
        mcp=McpRules(
            has_json_replies=settings.mcp_replies == "json", allowed_hosts=settings.mcp_hosts
        ),
    )
