"""What holds for MCP when an operator decides nothing."""

from sessions.settings import Settings
from sessions.tools.mcp_rules import McpRules


def test_the_rules_are_those_of_the_settings_when_nothing_is_set():
    settings = Settings()
    assert McpRules() == McpRules(
        has_json_replies=settings.mcp_replies == "json", allowed_hosts=settings.mcp_hosts
    )
