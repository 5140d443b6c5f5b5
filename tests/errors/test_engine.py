"""What an error about an engine's dialect says."""

from sessions.errors.engine import EngineDialectUnknownError


def test_an_unknown_dialect_is_final_because_only_a_setting_helps():
    error = EngineDialectUnknownError("why")
    assert (error.status, error.code) == (502, "engine_dialect_unknown")
    assert ("x-should-retry", "false") in error.headers
