"""The official conformance suite against real groups; see docs/tools.md#conformance."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.conformance import REQUIREMENTS, SUITE_VERSION, run_suite, scenario_of
from tests.support.group import Groups
from tests.support.pages import ROOT, rows_of, section_of

APP: Final = "tests.support.conformance_app:make_app"
# What a failed scenario needs that is not offered; all else must pass.
NOT_OFFERED: Final = re.compile(
    r"resources-.*|prompts-.*|completion-complete|caching"  # resources, prompts, completion
    r"|logging-set-level|tools-call-with-logging|tools-call-with-progress"  # notifications
    r"|tools-call-sampling|tools-call-elicitation|elicitation-.*|input-required-result-.*"
    r"|server-stateless"  # only its tools that ask the client
    r"|tasks-.*"  # an extension
)


def told_counts() -> dict[str, tuple[int, int]]:
    page = (ROOT / "docs" / "tools.md").read_text()
    rows = rows_of(section_of(page, "conformance"))
    return {row[0][:10]: (int(row[1]), int(row[2])) for row in rows if row[0][:10] in REQUIREMENTS}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("shards", "replies"), [(1, "json"), (4, "sse")])
def test_a_server_passes_all_that_it_offers(
    groups: Groups, tmp_path: Path, shards: int, replies: str
):
    env = {
        "SESSIONS_MCP_REPLIES": replies,
        "SESSIONS_MCP_ALLOWED_HOSTS": "localhost,127.0.0.1,[::1]",
    }
    group = groups.start(app=APP, shards=shards, env=env)
    url = f"http://localhost:{group.address[1]}/mcp"
    counts = {}
    for requirements in REQUIREMENTS:
        statuses, failed = run_suite(url, requirements, tmp_path / requirements)
        assert {name for name in failed if not NOT_OFFERED.fullmatch(name)} == set()
        counts[requirements] = (statuses["SUCCESS"], statuses["FAILURE"])
    assert counts == told_counts()


def test_a_scenario_is_told_from_the_time_at_which_it_ran():
    folder = "server-json-schema-2020-12-2026-11-30T08-45-20-201Z"
    assert scenario_of(folder) == "json-schema-2020-12"


def test_the_page_names_the_version_of_the_suite():
    page = (ROOT / "docs" / "tools.md").read_text()
    assert SUITE_VERSION in section_of(page, "conformance")
