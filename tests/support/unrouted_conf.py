"""gunicorn_conf.py with routing switched off: the router lends to any shard, owner or not.

The parity suite must fail under it, or it would prove nothing.

Spec: docs/architecture.md#tests
"""

import itertools

from gunicorn_conf import *  # noqa: F403 - gunicorn reads the names
from sessions.router import dispatch

_turns = itertools.count()


def _anyone(_session_id: str, shards: int) -> int:
    return next(_turns) % shards


vars(dispatch)["owner_of"] = _anyone
