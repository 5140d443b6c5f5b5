"""Plays one script of the model on a real connection to a real group, and says what was wrong.

`play` brings the connection into its state, lets client and group do what the script says, reads
what comes until the connection ends or every request is answered, and compares. Afterwards the
group must be as it was: no request run twice, none run behind the end, every living shard
answering, all descriptors back.

Spec: docs/lending.md#guards
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final

from tests.support.model import (
    ENDING_FORMS,
    GONE,
    NOBODY,
    NOTICED,
    Ask,
    Expectation,
    Fate,
    Form,
    Script,
    Seen,
    State,
    Touch,
    Trouble,
    fates_behind,
    fates_in_state,
    faults_of,
    may_reset,
    status_of_death,
)
from tests.support.model_app import STALLED_BYTES
from tests.support.model_arena import Arena
from tests.support.model_wire import Sent, read_seen, request_of_ask, request_of_state
from tests.support.raw import AsyncRawConnection, open_raw, request_bytes

_SMALL_BUFFER_BYTES: Final = 4096
_LARGE_BUFFER_BYTES: Final = 1 << 20
_TIMEOUT_S: Final = 15.0
_UNREAD_S: Final = 0.03  # so long a client that does not read does not read at least


async def play(arena: Arena, number: int, script: Script) -> list[str]:
    """Play one script.

    Args:
        arena: Whose group it is played on.
        number: Of the example; makes its ids unique in the group.
        script: What happens.

    Returns:
        What differs from the model; empty if nothing does.
    """
    if arena.shards == 1 and script.trouble is Trouble.ROUTER_SLOW:
        raise ValueError("a lone shard has no router")
    await arena.prepare(kills=script.trouble is Trouble.KILLED)
    player = _Player(arena, f"e{number}.", script)
    return await player.play()


class _Player:
    """One connection and its script."""

    def __init__(self, arena: Arena, prefix: str, script: Script) -> None:
        self._arena = arena
        self._prefix = prefix
        self._script = script
        self._live = list(arena.live)
        self._victim = self._shard_of(script.owner if script.owner != NOBODY else 0)
        self._serial = 0
        self._expected: list[Expectation] = []
        self._seen: list[Seen] = []
        self._was_reset = False
        self._probes: set[str] = set()
        self._sender: asyncio.Task[None] | None = None
        self._unsent = b""
        self._connection: AsyncRawConnection
        self._crisis: Sent | None = None
        self._ahead: list[tuple[Ask, Sent]] = []

    async def play(self) -> list[str]:
        is_small = self._script.touch is Touch.STOPS_READING or self._script.state is State.FLOODED
        buffer_bytes = _SMALL_BUFFER_BYTES if is_small else 0
        opened = open_raw(
            self._arena.group.address, timeout_s=_TIMEOUT_S, receive_buffer_bytes=buffer_bytes
        )
        async with opened as self._connection:
            try:
                await self._before()
                await self._reach_state()
                await self._disturb()
                await self._finish()
            finally:
                await self._stop_sending()
        faults = faults_of(self._expected, self._seen, must_go_on=self._must_go_on)
        if self._was_reset and not may_reset(self._script):
            faults.append("a reset")
        if self._arena.live:
            faults += await self._look_after()
        return faults

    @property
    def _must_go_on(self) -> bool:
        return (
            self._script.trouble is not Trouble.KILLED
            and self._script.touch is not Touch.HALF_CLOSES
        )

    # --- requests

    def _shard_of(self, owner: int) -> int:
        return NOBODY if owner == NOBODY else self._live[owner % len(self._live)]

    def _next_seed(self) -> str:
        self._serial += 1
        return f"{self._prefix}{self._serial}"

    def _request(self, ask: Ask) -> Sent:
        shard = self._shard_of(ask.owner)
        return request_of_ask(ask, self._next_seed(), shard, self._arena.shards)

    async def _read(self, sent: Sent, fates: frozenset[Fate], *, ends: bool) -> None:
        status = status_of_death(self._arena.policy, sent.owner)
        self._expected.append(Expectation(seed=sent.seed, fates=fates, ends=ends, status=status))
        seen, was_reset = await read_seen(self._connection, sent)
        self._seen.append(seen)
        self._was_reset = self._was_reset or was_reset

    async def _read_ask(self, ask: Ask, sent: Sent, fates: frozenset[Fate]) -> None:
        if sent.is_probe:
            self._probes.add(sent.seed)
        await self._read(sent, fates, ends=ask.form in ENDING_FORMS)

    @property
    def _has_ended(self) -> bool:
        return any(s.says_close or s.fate in (Fate.CUT, Fate.LOST) for s in self._seen)

    # --- the parts of a script

    async def _before(self) -> None:
        for burst in self._script.before:
            requests = [(ask, self._request(ask)) for ask in burst]
            await self._connection.send(b"".join(sent.data for _, sent in requests))
            for ask, sent in requests:
                await self._read_ask(ask, sent, frozenset({Fate.REPLY}))

    async def _reach_state(self) -> None:
        script = self._script
        if script.starts_in_trouble:
            await self._begin_trouble()
        if script.state is State.IDLE:
            if not script.is_hasty:  # the shards' loops turn: what they had is given back
                await self._arena.journal(self._prefix)
            return
        owner = self._shard_of(script.owner)
        crisis = self._crisis = request_of_state(
            script.state,
            self._next_seed(),
            owner,
            self._arena.shards,
            is_chunked=script.is_chunked,
        )
        self._unsent = crisis.data[crisis.first_bytes :]
        data = crisis.data[: crisis.first_bytes]
        if script.state is State.PIPELINED:
            ask = Ask(form=Form.POST, owner=script.owner, size=50)
            behind = self._request(ask)
            self._ahead.append((ask, behind))
            data += behind.data
        with contextlib.suppress(OSError):  # a group that is over refuses
            await self._connection.send(data, piece_bytes=script.piece_bytes)
        if not script.starts_in_trouble:
            await self._arrive(crisis)

    async def _arrive(self, crisis: Sent) -> None:
        """Wait until the state is there, as client and application see it."""
        state, parser = self._script.state, self._connection.parser
        if state is State.HALF_HEAD:
            await self._go_round()
            return
        if state is State.EXPECTING:
            while b"\r\n\r\n" not in parser.leftover:
                await self._connection._read()
            assert parser.leftover.startswith(b"HTTP/1.1 100 "), parser.leftover
        elif state in (State.STALLED, State.FLOODED):
            wanted = STALLED_BYTES // 2 if state is State.STALLED else 1
            while len(parser.leftover) < wanted:
                await self._connection._read()
        elif state in (State.DISCARDING, State.DONE, State.ENDING):
            fates = fates_in_state(self._script, self._arena.policy)
            await self._read(crisis, fates, ends=state is State.ENDING)
        self._victim = await self._arena.wait_run(self._prefix, crisis.seed)

    async def _go_round(self) -> None:
        """What was sent so far is read by the front when another connection has its answer."""
        async with open_raw(self._arena.group.address) as other:
            assert (await other.ask(request_bytes("GET", "/livez"))).status == 200

    async def _disturb(self) -> None:
        script = self._script
        if script.is_trouble_first and not script.starts_in_trouble:
            await self._begin_trouble()
            await self._pause()
        await self._touch()
        if not script.is_trouble_first and not script.starts_in_trouble:
            await self._pause()
            await self._begin_trouble()
        await self._pause()
        await self._end_trouble()

    async def _pause(self) -> None:
        await asyncio.sleep(self._script.pause_ms / 1000)  # what is modelled, not waited for

    async def _begin_trouble(self) -> None:
        match self._script.trouble:
            case Trouble.KILLED if self._script.is_frozen_first:
                self._arena.stop(f"shard {self._victim}")
            case Trouble.KILLED:
                self._arena.kill(self._victim)
            case Trouble.STOPPED:
                self._arena.stop(f"shard {self._victim}")
            case Trouble.ROUTER_SLOW:
                self._arena.stop("router")

    async def _end_trouble(self) -> None:
        match self._script.trouble:
            case Trouble.KILLED:
                if self._script.is_frozen_first:
                    self._arena.kill(self._victim)
                await self._arena.wait_death(self._victim)
            case Trouble.STOPPED:
                self._arena.go_on(f"shard {self._victim}")
            case Trouble.ROUTER_SLOW:
                self._arena.go_on("router")

    async def _touch(self) -> None:
        match self._script.touch:
            case Touch.CLOSES:
                self._connection.close()
            case Touch.RESETS:
                self._connection.reset()
            case Touch.HALF_CLOSES:
                with contextlib.suppress(OSError):  # the server was faster
                    self._connection.half_close()
            case Touch.SENDS_EARLY:
                self._send_ahead()

    def _send_ahead(self) -> None:
        """Send all the rest in the background, since the server need not read it."""
        requests = [(ask, self._request(ask)) for ask in self._script.follow]
        self._ahead += requests
        self._send_soon(b"".join(sent.data for _, sent in requests))

    def _send_soon(self, behind: bytes = b"") -> None:
        data, self._unsent = self._unsent + behind, b""

        async def send() -> None:
            with contextlib.suppress(OSError):  # an end is seen by who reads
                await self._connection.send(data, piece_bytes=self._script.piece_bytes)

        self._sender = asyncio.create_task(send())

    async def _stop_sending(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])

    # --- the end

    async def _finish(self) -> None:
        script = self._script
        await self._open_gate()
        if script.touch in GONE:
            return
        if script.touch is Touch.STOPS_READING:
            self._send_ahead()
            await asyncio.sleep(max(_UNREAD_S, self._script.pause_ms / 1000))
        elif script.touch is Touch.NOTHING:
            self._send_soon()
        if script.state is State.FLOODED:  # else its reply takes seconds
            self._connection.socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, _LARGE_BUFFER_BYTES
            )
        policy = self._arena.policy
        if self._crisis is not None and not self._is_read(self._crisis):
            await self._read(self._crisis, fates_in_state(script, policy), ends=False)
        for ask, sent in self._ahead:
            await self._read_ask(ask, sent, self._fates_behind(ask, sent))
        if script.touch is Touch.NOTHING:
            await self._ask_on()
        elif not self._has_ended and script.touch is not Touch.HALF_CLOSES:
            await self._ask_one(Ask(form=Form.PROBE))
        if self._has_ended or script.touch is Touch.HALF_CLOSES:
            await self._read_end()

    def _is_read(self, sent: Sent) -> bool:
        return any(expected.seed == sent.seed for expected in self._expected)

    async def _open_gate(self) -> None:
        script, crisis = self._script, self._crisis
        if crisis is None:
            return
        waits = (
            script.touch is Touch.HALF_CLOSES
            and script.state in NOTICED
            and script.trouble is not Trouble.KILLED
            and not script.is_hasty
        )
        if waits:
            await self._arena.wait_left(self._prefix, crisis.seed)
        await self._arena.open_gates([crisis.seed])

    def _fates_behind(self, ask: Ask, sent: Sent) -> frozenset[Fate]:
        return fates_behind(
            self._script, self._arena.policy, ask, is_of_dead=sent.owner == self._victim
        )

    async def _ask_on(self) -> None:
        """One request at a time while the connection goes on, then a probe."""
        for ask in (*self._script.follow, Ask(form=Form.PROBE)):
            if self._has_ended:
                return
            await self._ask_one(ask)

    async def _ask_one(self, ask: Ask) -> None:
        sent = self._request(ask)
        if self._sender is not None:
            await self._sender
        with contextlib.suppress(OSError):
            await self._connection.send(sent.data, piece_bytes=self._script.piece_bytes)
        await self._read_ask(ask, sent, self._fates_behind(ask, sent))

    async def _read_end(self) -> None:
        """Nothing comes behind the end."""
        try:
            leftover = await self._connection.read_to_end()
        except TimeoutError:
            raise AssertionError("the connection does not end") from None
        except OSError:
            self._was_reset = True
            leftover = self._connection.parser.leftover
        assert leftover == b"", f"behind the end: {leftover[:200]!r}"

    # --- the group

    async def _look_after(self) -> list[str]:
        """What is wrong with the group now that the client is gone."""
        await self._arena.wait_descriptors()
        journal = await self._arena.journal(self._prefix)
        faults = [f"{seed} was run {n} times" for seed, n in journal.runs.items() if n > 1]
        if self._script.state is State.ENDING and self._script.touch not in GONE:
            behind = {sent.seed for _, sent in self._ahead}
            faults += [f"{seed} was run behind the end" for seed in behind & set(journal.runs)]
        if self._script.trouble is not Trouble.KILLED:  # the dead tell nothing
            replied = [
                expected.seed
                for expected, seen in zip(self._expected, self._seen, strict=True)
                if seen.fate is Fate.REPLY and expected.seed not in self._probes
            ]
            faults += [f"{seed} was not run" for seed in replied if seed not in journal.runs]
        await self._arena.check_health()
        if self._script.trouble is Trouble.KILLED:
            await self._arena.wait_descriptors()
            await self._arena.settle_baseline()
        return faults
