"""gunicorn_conf.py with the look-up of claims switched off: the router finds no holder.

What tests claims must fail under it, or it would prove nothing. Any shard is taken instead, by
chance: calls that come in step would else find theirs by the order in which shards take turns.

Spec: docs/architecture.md#tests
"""

import random

from gunicorn_conf import *  # noqa: F403 - gunicorn reads the names
from sessions.router import dispatch
from sessions.router.claims import ClaimTable, Holder


def _find_nobody(_table: ClaimTable, _key: bytes) -> Holder | None:
    return None


vars(dispatch)["least_loaded"] = random.choice
ClaimTable.find = _find_nobody  # type: ignore[method-assign, assignment]
