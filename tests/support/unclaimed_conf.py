"""gunicorn_conf.py with the look-up of claims switched off: the router finds no holder.

What tests claims must fail under it, or it would prove nothing.

Spec: docs/architecture.md#tests
"""

from gunicorn_conf import *  # noqa: F403 - gunicorn reads the names
from sessions.router.claims import ClaimTable, Holder


def _find_nobody(_table: ClaimTable, _key: bytes) -> Holder | None:
    return None


ClaimTable.find = _find_nobody  # type: ignore[method-assign, assignment]
