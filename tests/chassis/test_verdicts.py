"""What the end of a member means."""

import signal

import pytest

from sessions.chassis.verdicts import Death, ExitCode, judge
from sessions.lending.board import Phase

_STATUSES = (0, 1, 3, 4, 70, -9, -11, -34, None)


def _death(
    phase: Phase,
    status: int | None = -9,
    *,
    draining: bool = False,
    overrun_s: float = 0.0,
    reason: str = "",
) -> Death:
    return Death(
        member="shard 2",
        pid=71,
        phase=phase,
        status=status,
        draining=draining,
        overrun_s=overrun_s,
        reason=reason,
    )


@pytest.mark.parametrize("status", _STATUSES)
@pytest.mark.parametrize(
    ("phase", "code"),
    [
        (Phase.FORKED, ExitCode.BOOT_FAILED),
        (Phase.BOOTING, ExitCode.BOOT_FAILED),
        (Phase.READY, ExitCode.WORKER_DIED),
        (Phase.DRAINING, ExitCode.WORKER_DIED),
        (Phase.DRAINED, ExitCode.WORKER_DIED),
    ],
)
def test_an_end_that_nobody_asked_for_is_fatal_whatever_its_status(
    phase: Phase, code: ExitCode, status: int | None
):
    assert judge(_death(phase, status)).code is code


@pytest.mark.parametrize("status", _STATUSES)
@pytest.mark.parametrize(
    ("phase", "code"),
    [
        (Phase.FORKED, ExitCode.CLEAN),
        (Phase.BOOTING, ExitCode.CLEAN),
        (Phase.READY, ExitCode.NOT_DRAINED),
        (Phase.DRAINING, ExitCode.NOT_DRAINED),
        (Phase.DRAINED, ExitCode.CLEAN),
    ],
)
def test_an_end_during_a_stop_is_clean_if_nothing_can_have_been_in_flight(
    phase: Phase, code: ExitCode, status: int | None
):
    assert judge(_death(phase, status, draining=True)).code is code


@pytest.mark.parametrize(
    ("death", "sentence"),
    [
        (_death(Phase.READY), "shard 2 (pid 71) was killed by SIGKILL"),
        (_death(Phase.READY, 3), "shard 2 (pid 71) exited with status 3"),
        (_death(Phase.READY, None), "shard 2 (pid 71) ended"),
        (_death(Phase.READY, -signal.SIGRTMIN - 1), "shard 2 (pid 71) was killed by signal 35"),
        (
            _death(Phase.BOOTING, 71, reason="no such file"),
            "shard 2 (pid 71) exited with status 71 while booting: no such file",
        ),
        (
            _death(Phase.BOOTING, 1, overrun_s=60.0),
            "shard 2 (pid 71) was not ready within 60 s and exited with status 1",
        ),
        (
            _death(Phase.READY, -6, overrun_s=2),
            "shard 2 (pid 71) did not beat for 2 s and was killed by SIGABRT",
        ),
        (
            _death(Phase.DRAINING, -9, draining=True),
            "shard 2 (pid 71) was killed by SIGKILL while draining",
        ),
        (
            _death(Phase.DRAINED, 0),
            "shard 2 (pid 71) exited with status 0 after it alone was told to stop",
        ),
    ],
)
def test_the_sentence_says_who_ended_how_and_why(death: Death, sentence: str):
    assert judge(death).sentence == sentence
