"""What a shard counts for the metrics page: numbers that it writes on the board at each beat.

Spec: docs/operations.md#metrics
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """One shard's numbers; each fits 64 bits, in the order in which the board holds them.

    Attributes:
        ended_sessions: Sessions that were deleted or expired, since the start.
        recorded_turns: Turns that were committed, since the start.
        unrecorded_turns: Turns that the engine answered with 200 and that were not committed.
        failed_turns: Turns that ended in an error, the engine's refusals included.
        turns_in_flight: Turns that run now.
        engine_bytes: Bytes of chat replies read from engines, since the start.
        replay_bytes: Bytes that the replay store holds now, shared prefixes once.
        replay_sessions: Sessions that have something in it.
        ingest_bytes: Bytes held now of replies that are still arriving.
        loop_lag_us: How late the loop was at most in the second before, microseconds.
    """

    ended_sessions: int = 0
    recorded_turns: int = 0
    unrecorded_turns: int = 0
    failed_turns: int = 0
    turns_in_flight: int = 0
    engine_bytes: int = 0
    replay_bytes: int = 0
    replay_sessions: int = 0
    ingest_bytes: int = 0
    loop_lag_us: int = 0
