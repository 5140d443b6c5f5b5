from sessions.errors.samples import SampleHookError


def test_a_hook_that_fails_is_final_for_the_request():
    error = SampleHookError("why")
    assert (error.status, error.code) == (422, "sample_hook_failed")
    assert ("x-should-retry", "false") in error.headers
