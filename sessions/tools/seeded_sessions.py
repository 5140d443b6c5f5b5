"""The seeded sessions of one shard: each is seeded once and released once, whatever comes twice.

A seed and a close run in tasks of their own, and requests wait for them. So who comes second joins:
a seed of the same payload gets what the first got, a close what the first close did. The session is
claimed before the environment seeds it. What ended is remembered (`SessionEndings`), and a release
that failed leaves the session closed to all but the next close. Sessions that nobody uses expire.

Spec: docs/tools.md#seed-and-close
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, Protocol

import msgspec

from sessions.errors.episodes import DuplicateClaimError
from sessions.errors.group import OverloadedError, draining_error
from sessions.errors.seeded_sessions import ReleaseFailedError, SeedMismatchError
from sessions.routing.claim_keys import claim_key
from sessions.routing.claimed_kinds import ENVIRONMENT, ROLLOUT_STOP
from sessions.tools.contained import wait_contained
from sessions.tools.context import ToolContext
from sessions.tools.rollout_stops import RolloutStops
from sessions.tools.seeded_session import SeededSession, not_open_error
from sessions.tools.session_endings import Ending, SessionEndings, released_error

_log: Final = logging.getLogger(__name__)
_DIGEST_BYTES: Final = 16
_LOOKS: Final = 4  # in the time after which a session expires


class SessionHooks(Protocol):
    """What an environment does with a session."""

    async def seed(self, request: dict[str, Any], session: SeededSession) -> Mapping[str, Any]:
        """Fill it."""

    async def close(self, session: SeededSession) -> None:
        """Give up what it has."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Seat:
    """A session that is there.

    Attributes:
        session: What the environment sees.
        key: Of its claim.
        payload: Digest of what it was seeded by.
        seeding: Ends when it is open.
        closing: Its release, if that has begun; a failed one is begun again.
        claims: What this shard holds of it.
        is_kept: Whether the environment may have something of it.
        giving_up: Its `close` of this, which nothing but its time ends; never two at once.
    """

    session: SeededSession
    key: bytes
    payload: bytes
    seeding: asyncio.Future[None]
    closing: asyncio.Task[None] | None = None
    claims: list[bytes] = field(default_factory=list)
    is_kept: bool = False
    giving_up: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it is seeded."""
        seeding = self.seeding
        return seeding.done() and not seeding.cancelled() and seeding.exception() is None


class SeededSessions:
    """See the module docstring.

    Attributes:
        stops: Stops the rollouts whose sessions these are.
    """

    def __init__(self, context: ToolContext, hooks: SessionHooks) -> None:
        """Have none.

        Args:
            context: Of the shard.
            hooks: Of the environment.
        """
        self.stops: Final = RolloutStops()
        self._context = context
        self._hooks = hooks
        self._seats: dict[str, _Seat] = {}
        self._endings = SessionEndings(context.claims, context.tombstones)
        self._burials: dict[bytes, asyncio.Task[None]] = {}  # of what never was seeded
        self._timer: asyncio.TimerHandle | None = None
        self._is_sweeping = False

    def __len__(self) -> int:
        """How many there are, those being seeded or released included."""
        return len(self._seats)

    # --- what requests ask for

    async def seed(self, session: SeededSession, request: dict[str, Any]) -> SeededSession:
        """Seed a session, or join whoever did; a waiter that is cancelled stops nothing.

        Args:
            session: With its id and rollout.
            request: The payload.

        Returns:
            The session that is seeded now; another one if the id was taken.

        Raises:
            SessionReleasedError: The session is over, or is being released.
            SeedMismatchError: It was seeded by another payload.
            NotReadyError: There is no room, or the shard is ending.
            DuplicateClaimError: Its rollout has a session already; or it is on another shard, and
                the router could not see that.
            Exception: The environment's own; the session is released then.
        """
        seat = self._seats.get(session.id)
        text = msgspec.json.encode(request, order="sorted")
        payload = blake2b(text, digest_size=_DIGEST_BYTES).digest()
        if seat is None:
            key = claim_key(ENVIRONMENT, session.id)
            self._check_free(key, session.id)
            self._check_room()
            seat = self._begin(session, key, payload, request)
        elif seat.closing is not None:
            raise released_error(session.id, Ending.CLOSED)
        elif seat.payload != payload:
            raise SeedMismatchError(
                f"session {session.id!r} was seeded by another payload",
                param="resources_session_id",
            )
        with seat.session.used():
            await asyncio.wait((seat.seeding,))
        if seat.closing is not None:
            raise released_error(session.id, Ending.CLOSED)
        seat.seeding.result()
        return seat.session

    def find(self, session_id: str) -> SeededSession:
        """A session that is open.

        Raises:
            SessionNotOpenError: It is not; the message says why if that is known.
        """
        seat = self._seats.get(session_id)
        if seat is None:
            raise self._endings.gone_error(claim_key(ENVIRONMENT, session_id))
        if seat.closing is not None:
            raise not_open_error("it is being closed, ")
        if not seat.is_ready:
            raise not_open_error("it was not seeded, ")
        return seat.session

    async def close(self, session_id: str) -> str:
        """Release a session, or join whoever does; a waiter that is cancelled stops nothing.

        Returns:
            `closed`, `already_closed` or `never_seeded`.

        Raises:
            ReleaseFailedError: The environment could not; the next close tries again.
            DuplicateClaimError: It is on another shard, and the router could not see that.
        """
        seat = self._seats.get(session_id)
        if seat is not None:
            is_first = seat.closing is None or seat.closing.done()
            await _joined(self._begin_closing(seat, Ending.CLOSED))
            return "closed" if is_first else "already_closed"
        key = claim_key(ENVIRONMENT, session_id)
        ending = self._endings.find(key)
        if ending is None:
            # From here on a seed that comes late finds it closed, on whichever shard.
            if key not in self._burials:
                burial = self._burials[key] = asyncio.create_task(self._bury(key))
                burial.add_done_callback(_note_end)
            await _joined(self._burials[key])
            ending = Ending.NEVER_SEEDED
        return "never_seeded" if ending is Ending.NEVER_SEEDED else "already_closed"

    def abandon(self, session_id: str) -> None:
        """Release a session that nobody waits for, if it is there."""
        seat = self._seats.get(session_id)
        if seat is not None:
            seat.closing = self._begin_closing(seat, Ending.CLOSED)

    async def sweep(self) -> None:
        """Take no more sessions and release all; what does not end in its time is left behind."""
        self._is_sweeping = True
        if self._timer is not None:
            self._timer.cancel()
        closings = [self._begin_closing(seat, Ending.CLOSED) for seat in self._seats.values()]
        if closings:
            await asyncio.wait(closings)  # each ends in a bounded time

    # --- how they begin

    def _check_free(self, key: bytes, session_id: str) -> None:
        """Let a seed pass whose id was not used.

        Raises:
            SessionReleasedError: It was.
        """
        ending = Ending.NEVER_SEEDED if key in self._burials else self._endings.find(key)
        if ending is not None:
            raise released_error(session_id, ending)

    def _check_room(self) -> None:
        """Let one more session in.

        Raises:
            NotReadyError: The shard is ending.
            OverloadedError: Its share of the server's sessions is used up.
        """
        if self._is_sweeping:
            raise draining_error()
        if len(self._seats) >= self._context.max_episodes:
            raise OverloadedError(
                f"{self._context.max_episodes} sessions are open on this shard, its share of"
                " SESSIONS_MAX_EPISODES, try again soon"
            )

    def _begin(
        self, session: SeededSession, key: bytes, payload: bytes, request: dict[str, Any]
    ) -> _Seat:
        loop = asyncio.get_running_loop()
        seat = _Seat(session=session, key=key, payload=payload, seeding=loop.create_future())
        seat.seeding = asyncio.create_task(self._seed(seat, request))
        seat.seeding.add_done_callback(_note_end)
        self._seats[session.id] = seat
        self._watch()
        return seat

    async def _seed(self, seat: _Seat, request: dict[str, Any]) -> None:
        """Claim, then seed. A failure leaves nothing, unless the release fails as well."""
        session = seat.session
        try:
            await self._claim(seat, seat.key, f"session {session.id!r} is on another shard")
            if session.rollout is not None:
                name = session.rollout.key
                taken = f"rollout {name!r} has a session already"
                await self._claim(seat, claim_key(ROLLOUT_STOP, name), taken)
                self.stops.add(name, session.stop)
            seat.is_kept = True
            told = await wait_contained(self._hooks.seed(request, session))
            session.told = msgspec.json.decode(msgspec.json.encode(dict(told or {})))
        except (Exception, asyncio.CancelledError):
            if seat.closing is None:
                await self._release(seat)
            if seat.closing is None:  # else the close goes on from here
                self._forget(seat)
            raise

    async def _claim(self, seat: _Seat, key: bytes, taken: str) -> None:
        try:
            await self._context.claims.claim(key)
        except DuplicateClaimError as error:
            raise DuplicateClaimError(taken) from error
        seat.claims.append(key)

    # --- how they end

    def _begin_closing(self, seat: _Seat, ending: Ending) -> asyncio.Task[None]:
        if seat.closing is None or seat.closing.done():
            seat.closing = asyncio.create_task(self._close(seat, ending))
            seat.closing.add_done_callback(_note_end)
        return seat.closing

    async def _close(self, seat: _Seat, ending: Ending) -> None:
        seat.seeding.cancel()
        _, left = await asyncio.wait((seat.seeding,), timeout=self._context.cleanup_s)
        if left:
            _log.error("a seed does not end session=%r", seat.session.id)
            raise _failed_error(seat.session)
        if not seat.claims:
            assert seat.closing is not None  # noqa: S101 - for the type checker: this runs in it
            # Cancelled while it was being claimed; the environment has not seen it.
            self._forget(seat)
            if not self._is_sweeping:  # else nobody comes any more, and a claim may take for ever
                self._burials[seat.key] = seat.closing
                await self._bury(seat.key)
            return
        await self._release(seat)
        self._endings.add(seat.key, ending)
        seat.claims.remove(seat.key)  # kept by the ending
        self._forget(seat)

    async def _release(self, seat: _Seat) -> None:
        """Let the environment give up what it has of a session, in a bounded time; once.

        Raises:
            ReleaseFailedError: It could not.
        """
        session = seat.session
        session.close()
        limit_s = self._context.cleanup_s
        for work in (session.served, session.verdicts):
            await work.wait_ended(limit_s)
        if not seat.is_kept:
            return
        if seat.giving_up is None or seat.giving_up.done():
            seat.giving_up = asyncio.create_task(self._give_up(seat))
            seat.giving_up.add_done_callback(_note_end)
        giving_up = seat.giving_up
        await asyncio.wait((giving_up,), timeout=limit_s)
        if giving_up.cancel():  # it was not done
            _log.error("a release does not end session=%r", session.id)
        elif seat.is_kept:
            why = None if giving_up.cancelled() else giving_up.exception()
            _log.error("release failed session=%r", session.id, exc_info=why)
        if seat.is_kept:
            raise _failed_error(session)

    async def _give_up(self, seat: _Seat) -> None:
        await wait_contained(self._hooks.close(seat.session))
        seat.is_kept = False

    def _forget(self, seat: _Seat) -> None:
        del self._seats[seat.session.id]
        rollout = seat.session.rollout
        # Unclaimed, it is another session's.
        if rollout is not None and claim_key(ROLLOUT_STOP, rollout.key) in seat.claims:
            self.stops.remove(rollout.key)
        for key in seat.claims:
            self._context.claims.release(key)

    async def _bury(self, key: bytes) -> None:
        """Keep an id that never was seeded from being so."""
        try:
            await self._context.claims.claim(key)
            self._endings.add(key, Ending.NEVER_SEEDED)
        except DuplicateClaimError as error:
            raise DuplicateClaimError("this session is on another shard") from error
        finally:
            del self._burials[key]

    # --- those that nobody uses

    def _watch(self) -> None:
        if self._timer is None and not self._is_sweeping:
            period_s = self._context.session_ttl_s / _LOOKS
            self._timer = asyncio.get_running_loop().call_later(period_s, self._end_unused)

    def _end_unused(self) -> None:
        self._timer = None
        before = asyncio.get_running_loop().time() - self._context.session_ttl_s
        for seat in self._seats.values():
            if seat.seeding.done() and not seat.session.uses and seat.session.last_used <= before:
                seat.closing = self._begin_closing(seat, Ending.EXPIRED)
        if self._seats:
            self._watch()


def _failed_error(session: SeededSession) -> ReleaseFailedError:
    return ReleaseFailedError(
        f"session {session.id!r} could not be released, close it again; the server's log says why"
    )


def _note_end(task: asyncio.Future[Any]) -> None:
    """Take a failure that perhaps nobody waits for; who waits gets it, too."""
    if not task.cancelled():
        task.exception()


async def _joined(task: asyncio.Task[None]) -> None:
    """Wait for a task without cancelling it.

    Raises:
        Exception: Its own.
    """
    await asyncio.wait((task,))
    task.result()
