"""Python's garbage collector: what was loaded is not looked at again and again.

A full collection visits every container there is, and small objects that stay (the records of an
episode's calls) bring one about whenever they are a quarter more. Of a shard with MCP's SDK
100,000 containers belong to modules that live as long as the process, and because of them a
collection stood still for 40 to 55 ms (measured); without them it takes what sessions take.

Spec: docs/limits.md#memory
"""

from __future__ import annotations

import gc


def set_loaded_aside() -> None:
    """Leave all that is there now out of collections; called once, before the first request.

    What is in cycles now and is given up later is not found any more: the garbage of loading is
    thus collected first.
    """
    gc.collect()
    gc.freeze()
