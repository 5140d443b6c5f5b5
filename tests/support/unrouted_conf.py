"""gunicorn_conf.py with routing switched off: the router lends to any shard, owner or not.

The parity suite must fail under it, or it would prove nothing.

Spec: docs/architecture.md#tests
"""

import random

from gunicorn_conf import *  # noqa: F403 - gunicorn reads the names
from sessions.router import dispatch


def _anyone(_session_id: str, shards: int) -> int:
    return random.randrange(shards)


vars(dispatch)["owner_of"] = _anyone
