"""The product's roles are those of the router and the shards, and loaded by nobody else."""

import subprocess
import sys

import pytest

_LOADS = """
import asyncio, sys
from sessions.chassis.{module} import {name}
print(sorted(m for m in sys.modules if m.startswith(("sessions.router", "sessions.shard"))))
"""


@pytest.mark.parametrize(
    ("module", "name"), [("roles", "Roles"), ("worker", "GroupWorker"), ("hooks", "on_starting")]
)
def test_the_chassis_loads_no_role_before_it_is_played(module: str, name: str):
    code = _LOADS.format(module=module, name=name)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
