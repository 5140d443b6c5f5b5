"""The preflight: what can be known to be wrong with the application before the forks.

Nothing of the application is imported: the router inherits what the arbiter has loaded. So whether
its module runs is found by the shards; that there is such a package can be told here.

Spec: docs/architecture.md#life-and-death
"""

from __future__ import annotations

from importlib.util import find_spec

from sessions.errors.unseen import SettingsError
from sessions.settings import MATCHERS, SIMULATED_ENGINE, Settings, check_app_settings, variable_of


def check_application(settings: Settings) -> None:
    """Refuse settings with which no shard can load its application.

    Args:
        settings: As read.

    Raises:
        SettingsError: One line that names the variable.
    """
    check_app_settings(settings)
    if settings.app:
        _check_package("SESSIONS_APP", settings.app)
        return
    if settings.matcher not in MATCHERS:
        _check_package("SESSIONS_MATCHER", settings.matcher)
    for field in ("sample_picker", "sample_post_processor"):
        named: str = getattr(settings, field)
        if named:
            _check_package(variable_of(field), named)
    if settings.engine_url.startswith(SIMULATED_ENGINE):
        _check_options(settings.engine_url)


def _check_package(variable: str, name: str) -> None:
    package = name.partition(":")[0].partition(".")[0]
    try:
        is_there = find_spec(package) is not None
    except ValueError:  # what a module without a spec gets, such as `__main__`
        is_there = False
    if not is_there:
        raise SettingsError(f"{variable}={name!r} is refused: there is no module {package!r}")


def _check_options(url: str) -> None:
    # As light as the settings, and needed by nobody with a real engine.
    from sessions.sim.options import parse_sim_url  # noqa: PLC0415 - see above

    try:
        parse_sim_url(url)
    except SettingsError as error:
        raise SettingsError(f"SESSIONS_ENGINE_URL={url!r} is refused: {error}") from None
