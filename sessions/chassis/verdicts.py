"""Verdicts: what the end of a member means for its group.

Pure: from the member's phase, the kernel's wait status and whether the group was told to stop to
an exit code and a sentence. The sentence is the cause that the log, the board and the clients of
a dying group are told.

Spec: docs/architecture.md#life-and-death
"""

from __future__ import annotations

import enum
import signal
from dataclasses import dataclass

from sessions.lending.board import Phase


class ExitCode(enum.IntEnum):
    """Exit codes of the arbiter."""

    CLEAN = 0
    REFUSED = 1
    WORKER_DIED = 70
    BOOT_FAILED = 71
    NOT_DRAINED = 72


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A member that ended.

    Attributes:
        member: Its name.
        pid: Its process.
        phase: The last phase that it wrote on the board.
        status: Exit status, or minus the number of the signal that killed it; None if unknown.
        draining: Whether the arbiter had been told to stop.
        overrun_s: The limit that it overran, in seconds (the boot deadline before READY, the
            heartbeat time-out from then on), or 0.
        reason: What the member itself said of its end, or "".
    """

    member: str
    pid: int
    phase: Phase
    status: int | None
    draining: bool
    overrun_s: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a death means.

    Attributes:
        code: With which the arbiter must end; CLEAN if the end was in order.
        sentence: Who ended and how, without a full stop.
    """

    code: ExitCode
    sentence: str


def judge(death: Death) -> Verdict:
    """The verdict on a death.

    A stop is clean for a member that had drained, and for one that was not ready yet: it never
    held a request. Any end without a stop is fatal, whatever the status says.
    """
    if not death.draining:
        code = ExitCode.BOOT_FAILED if death.phase < Phase.READY else ExitCode.WORKER_DIED
    elif death.phase < Phase.READY or death.phase is Phase.DRAINED:
        code = ExitCode.CLEAN
    else:
        code = ExitCode.NOT_DRAINED
    return Verdict(code=code, sentence=_sentence(death))


def _sentence(death: Death) -> str:
    words = [f"{death.member} (pid {death.pid})"]
    if death.overrun_s and death.phase < Phase.READY:
        words.append(f"was not ready within {death.overrun_s:g} s and")
    elif death.overrun_s:
        words.append(f"did not beat for {death.overrun_s:g} s and")
    words.append(_how(death.status))
    if death.phase < Phase.READY and not death.overrun_s:
        words.append("while booting")
    elif death.draining and death.phase is Phase.DRAINING:
        words.append("while draining")
    elif death.phase > Phase.READY and not death.draining:
        words.append("after it alone was told to stop")
    return " ".join(words) + (f": {death.reason}" if death.reason else "")


def _how(status: int | None) -> str:
    if status is None:
        return "ended"
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal has no name
        return f"was killed by signal {-status}"
