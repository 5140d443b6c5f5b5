"""A shard of a real group that may write no more: turns fail with a status, sessions go on."""

from __future__ import annotations

import resource
from pathlib import Path

import httpx
import pytest

from sessions.routing.ids import owner_of
from tests.support.group import Groups

# A turn has some 20 rows of 12 KiB; logs are smaller than the limit.
ENGINE = {"SESSIONS_ENGINE_URL": "sim:?layers=48&topk=8&pad=8", "SESSIONS_ROUTING_REPLAY": "1"}
LIMIT_BYTES = 65536
SHARDS = 2


def limit_files(pid: int, limit_bytes: int) -> None:
    """Let a process write no file beyond this size (it gets EFBIG, or EINVAL beyond all)."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))


@pytest.mark.parametrize("is_spooled", [False, True], ids=["memory", "spool"])
def test_turns_fail_while_the_shard_cannot_write_and_are_recorded_after(
    groups: Groups, tmp_path: Path, *, is_spooled: bool
):
    spool = {"SESSIONS_SPOOL_DIR": str(tmp_path)} if is_spooled else {}
    group = groups.start(shards=SHARDS, env=ENGINE | spool)
    with httpx.Client(base_url=group.url, trust_env=False, timeout=30) as client:
        session = client.post("/sessions").json()["session_id"]
        path = f"/sessions/{session}"
        shard = group.pids[f"shard {owner_of(session, SHARDS)}"]
        body = {"model": "sim", "messages": [{"role": "user", "content": "hi"}]}
        limit_files(shard, LIMIT_BYTES)
        for stream in (False, True):
            refused = client.post(f"{path}/v1/chat/completions", json={**body, "stream": stream})
            assert refused.status_code == 503, refused.text
            assert refused.json()["error"]["code"] == "replay_store_failed"
            assert refused.headers["x-should-retry"] == "false"
            assert client.get(path).json()["records"] == []
        limit_files(shard, resource.RLIM_INFINITY)
        assert client.post(f"{path}/v1/chat/completions", json=body).status_code == 200
        assert len(client.get(path).json()["records"]) == 1
        assert client.post(f"{path}/samples").status_code == 200
    assert "Traceback" not in group.log()
    assert "turn failed session=" in group.log()
