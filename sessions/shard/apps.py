"""Which application a shard runs: the rollout server, or the one that `SESSIONS_APP` names.

Spec: docs/architecture.md#applications
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from starlette.types import ASGIApp

from sessions.errors import SettingsError
from sessions.lending.group import Group
from sessions.lending.tally import Tally
from sessions.settings import SIMULATED_ENGINE, check_app_settings

logger = logging.getLogger(__name__)

_SIM_TOKENIZER = "pkg:qwen3"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedApp:
    """An application that is ready for its lifespan.

    Attributes:
        asgi: The ASGI 3 application.
        open_sessions: How many sessions it holds now.
        tally_of: What it counts besides, given the state of its lifespan.
    """

    asgi: ASGIApp
    open_sessions: Callable[[], int]
    tally_of: Callable[[Mapping[str, Any]], Tally]


def load_app(group: Group, index: int) -> LoadedApp:
    """Load a shard's application; takes as long as its imports and its tokenizer do.

    Args:
        group: Shared state of the group.
        index: The shard.

    Returns:
        The application.

    Raises:
        SettingsError: A setting is missing, or what it names cannot be loaded.
    """
    if group.settings.app:
        return LoadedApp(
            asgi=_named_app(group.settings.app), open_sessions=lambda: 0, tally_of=lambda _: Tally()
        )
    return _rollout_app(group, index)


def _rollout_app(group: Group, index: int) -> LoadedApp:
    settings = group.settings
    check_app_settings(settings)
    # Imported only here: another application may do without them.
    from sessions.core.registry import SessionRegistry  # noqa: PLC0415 - see above
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
    )
    return LoadedApp(
        asgi=rollout_app(group, registry, prompts),
        open_sessions=lambda: len(registry),
        tally_of=tally_of,
    )


def _named_app(name: str) -> ASGIApp:
    module, _, attribute = name.partition(":")
    try:
        factory = getattr(import_module(module), attribute, None)
        if callable(factory):
            app: ASGIApp = factory()
            return app
    except ModuleNotFoundError as error:
        raise SettingsError(f"SESSIONS_APP={name!r} cannot be loaded: {error}") from error
    except Exception as error:
        logger.exception("application failed to load app=%s", name)
        kind = type(error).__name__
        raise SettingsError(f"SESSIONS_APP={name!r} cannot be loaded: {kind}: {error}") from error
    raise SettingsError(f"SESSIONS_APP={name!r} names nothing that can be called")
