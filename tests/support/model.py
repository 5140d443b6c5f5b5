"""The model of one connection: what its client may see, as tables and pure functions.

A `Script` says what happens to one connection: some exchanges, then one that is brought into a
`State`; there the client does something (`Touch`) and something happens to the group (`Trouble`);
then more exchanges. `expectations` tells for each request the fates that it may have; `faults_of`
compares them with what was seen. The rules are those of docs/lending.md: each request gets one
reply of its own, in order, or what a death or a client that is gone allows, and nothing follows
the end.

It knows no socket and no process.

Spec: docs/lending.md#guards
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

NOBODY: Final = -1  # the owner of a request that names no session


class State(enum.Enum):
    """Where the connection is when something happens to it."""

    IDLE = enum.auto()
    HALF_HEAD = enum.auto()
    WAITING = enum.auto()  # the request is whole, no byte of a reply is out
    UPLOADING = enum.auto()  # half of the body is sent
    EXPECTING = enum.auto()  # the client got its 100 and has sent no body
    DISCARDING = enum.auto()  # the reply came early, half of the body is still to come
    STALLED = enum.auto()  # half of a framed reply is out
    FLOODED = enum.auto()  # the shard cannot write on, since the client does not read
    DONE = enum.auto()  # the reply is out, the application has not returned
    PIPELINED = enum.auto()  # waiting, with a whole request behind it
    ENDING = enum.auto()  # a reply said that it is the last


class Touch(enum.Enum):
    """What the client does."""

    NOTHING = enum.auto()
    CLOSES = enum.auto()
    RESETS = enum.auto()
    HALF_CLOSES = enum.auto()
    STOPS_READING = enum.auto()
    SENDS_EARLY = enum.auto()


class Trouble(enum.Enum):
    """What happens to the group."""

    NONE = enum.auto()
    KILLED = enum.auto()  # the shard that has or had the connection
    STOPPED = enum.auto()  # that shard, for some time
    ROUTER_SLOW = enum.auto()  # the router stands still for some time


class Policy(enum.Enum):
    """What a group does when a shard dies."""

    LONE = enum.auto()  # nobody is left to answer
    CONTINUE = enum.auto()
    HALT = enum.auto()


class Fate(enum.Enum):
    """What became of a request."""

    REPLY = enum.auto()  # its own, whole and right
    REFUSED = enum.auto()  # the status that a death gives
    CUT = enum.auto()  # its own reply, ended in the middle
    LOST = enum.auto()  # the connection ended without a byte for it


class Form(enum.Enum):
    """What an ordinary exchange looks like."""

    GET = enum.auto()
    POST = enum.auto()
    CHUNKED = enum.auto()
    HEAD = enum.auto()
    EARLY = enum.auto()  # answered before the body was read
    EXPECT = enum.auto()
    DRIP = enum.auto()
    LATE = enum.auto()
    BIG = enum.auto()
    PROBE = enum.auto()
    OLD = enum.auto()  # HTTP/1.0: ends the connection
    LAST = enum.auto()  # the application ends the connection


ENDING_FORMS: Final = frozenset({Form.OLD, Form.LAST})
BODY_FORMS: Final = frozenset({Form.POST, Form.CHUNKED, Form.EARLY, Form.EXPECT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One ordinary request.

    Attributes:
        owner: Number of a living shard, counted round; NOBODY names no session.
        size: Bytes of its body, if its form has one; makes a big reply bigger.
        out: Bytes of its reply.
    """

    form: Form
    owner: int = 0
    size: int = 0
    out: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What happens to one connection, in this order.

    Attributes:
        before: Bursts; the requests of one are sent at once.
        state: That the connection is brought into by a request of `owner`.
        is_trouble_first: Before the touch; else behind it.
        is_ahead: The trouble begins before the state's request is sent, if no reply must be read
            to get there.
        is_frozen_first: A shard that is killed was stopped before, and is killed at the end.
        is_hasty: After a half-close the exchange goes on before the server noticed it; a trouble
            comes right behind the last reply.
        pause_ms: Between touch and trouble, and before the end of the trouble.
        piece_bytes: The state's request and `follow` are sent in pieces of this size; 0 = whole.
        is_chunked: How a half body is framed.
        follow: Later requests: sent one by one, or at once by a client that sends early or does
            not read.
    """

    before: tuple[tuple[Ask, ...], ...] = ()
    state: State
    touch: Touch
    trouble: Trouble
    owner: int = 0
    is_trouble_first: bool = False
    is_ahead: bool = False
    is_frozen_first: bool = False
    is_hasty: bool = False
    pause_ms: int = 0
    piece_bytes: int = 0
    is_chunked: bool = False
    follow: tuple[Ask, ...] = (Ask(form=Form.GET),)

    @property
    def starts_in_trouble(self) -> bool:
        """Whether the trouble begins before the state's request."""
        return self.is_ahead and self.state in BLIND and self.trouble is not Trouble.NONE

    @property
    def sends_ahead(self) -> bool:
        """Whether later requests are sent before the earlier ones are answered."""
        return self.touch in (Touch.SENDS_EARLY, Touch.STOPS_READING)


GONE: Final = frozenset({Touch.CLOSES, Touch.RESETS})
BLIND: Final = frozenset({State.HALF_HEAD, State.WAITING, State.UPLOADING, State.PIPELINED})
_ANSWERED: Final = frozenset({State.DISCARDING, State.DONE, State.ENDING})
_MIDDLE: Final = frozenset({State.STALLED, State.FLOODED})
NOTICED: Final = frozenset(
    {State.WAITING, State.UPLOADING, State.EXPECTING, State.STALLED, State.PIPELINED}
)

_REPLY: Final = frozenset({Fate.REPLY})
_REFUSED: Final = frozenset({Fate.REFUSED})
_LOST: Final = frozenset({Fate.LOST})
_CUT: Final = frozenset({Fate.CUT})
_ANY: Final = frozenset(Fate)

# The client ended its sending side and the server knows it: what is written arrives, no more.
HALF_CLOSED: Final[Mapping[State, frozenset[Fate]]] = MappingProxyType(
    {
        State.HALF_HEAD: _LOST,
        State.WAITING: _LOST,
        State.UPLOADING: _LOST,
        State.EXPECTING: _LOST,
        State.PIPELINED: _LOST,
        State.STALLED: _CUT,
        State.FLOODED: _CUT | _REPLY,  # the client reads meanwhile
        State.DISCARDING: _REPLY,
        State.DONE: _REPLY,
        State.ENDING: _REPLY,
    }
)

# The shard that has the exchange died.
DIED: Final[Mapping[State, frozenset[Fate]]] = MappingProxyType(
    {
        State.WAITING: _REFUSED,
        State.UPLOADING: _REFUSED,
        State.EXPECTING: _REFUSED,
        State.PIPELINED: _REFUSED,
        State.STALLED: _CUT,
        State.FLOODED: _CUT,
        State.DISCARDING: _REPLY,
        State.DONE: _REPLY,
        State.ENDING: _REPLY,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What one request may come to.

    Attributes:
        ends: Its whole reply must say that the connection ends; else it must not.
        status: Of a refusal.
    """

    seed: str
    fates: frozenset[Fate]
    ends: bool = False
    status: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one request came to.

    Attributes:
        says_close: The reply said that the connection ends.
        status: Of the reply, or 0.
    """

    fate: Fate
    says_close: bool = False
    status: int = 0


def status_of_death(policy: Policy, owner: int) -> int:
    """The status of a request that a dead shard left unanswered (design, 6)."""
    if policy is Policy.HALT:
        return 503
    return 502 if owner == NOBODY else 410


def fates_in_state(script: Script, policy: Policy) -> frozenset[Fate]:
    """What may become of the request that brought the connection into its state."""
    state, touch = script.state, script.touch
    if script.trouble is Trouble.KILLED:
        return _fates_of_killed(script, policy)
    if touch is not Touch.HALF_CLOSES:
        return _REPLY
    if script.is_hasty and state in NOTICED - {State.UPLOADING, State.EXPECTING}:
        return HALF_CLOSED[state] | _REPLY
    return HALF_CLOSED[state]


def _fates_of_killed(script: Script, policy: Policy) -> frozenset[Fate]:
    state = script.state
    if state is State.HALF_HEAD:
        fates = _fates_of_half_head(script, policy)
    elif policy is Policy.LONE and state not in _ANSWERED | _MIDDLE:
        fates = _LOST
    else:
        fates = DIED[state]
    if script.starts_in_trouble and script.owner == NOBODY and policy is Policy.CONTINUE:
        fates |= _REPLY  # another shard serves it
    if script.touch is Touch.HALF_CLOSES:
        # Whether the shard noticed the half-close before it died is open.
        fates |= HALF_CLOSED[state] - (_REPLY if state is State.FLOODED else frozenset())
    return fates


def _fates_of_half_head(script: Script, policy: Policy) -> frozenset[Fate]:
    if script.touch is Touch.HALF_CLOSES:
        return _LOST
    if script.touch is Touch.SENDS_EARLY:
        return _ANY - _CUT  # the head ends before, in or behind the death
    if policy is Policy.CONTINUE:
        return _REPLY if script.owner == NOBODY else _REFUSED
    return _LOST if policy is Policy.LONE else _LOST | _REFUSED


def fates_behind(script: Script, policy: Policy, ask: Ask, *, is_of_dead: bool) -> frozenset[Fate]:
    """What may become of a later request, as far as the connection reaches it.

    Args:
        script: What happened before.
        policy: Of the group.
        ask: The request.
        is_of_dead: Whether it names a session of the shard that was killed.
    """
    if script.touch is Touch.HALF_CLOSES:
        return _LOST | _REPLY if script.is_hasty else _LOST
    if script.trouble is not Trouble.KILLED:
        return _REPLY
    if script.sends_ahead or script.state is State.PIPELINED:
        return _ANY
    if policy is not Policy.CONTINUE:
        return _LOST | _REFUSED
    may_be_cut = script.state is State.DISCARDING
    # The client has the whole reply, the shard has not marked it: no one could know better.
    may_be_cut = may_be_cut or (script.state is State.IDLE and script.is_hasty)
    fates = _REPLY if ask.form is Form.PROBE or not is_of_dead else _REFUSED
    return fates | _LOST if may_be_cut else fates


def may_reset(script: Script) -> bool:
    """Whether the connection may end with a reset: only a death cuts."""
    return script.trouble is Trouble.KILLED


def faults_of(
    expected: Sequence[Expectation], seen: Sequence[Seen], *, must_go_on: bool
) -> list[str]:
    """Compare what was seen with what may be seen.

    Args:
        expected: Of all requests that were sent, in order.
        seen: What became of them, in order.
        must_go_on: Nothing but a reply that says so may end the connection.
    """
    return list(_faults(expected, seen, must_go_on=must_go_on))


def _faults(
    expected: Sequence[Expectation], seen: Sequence[Seen], *, must_go_on: bool
) -> Iterator[str]:
    ended_by = ""
    for want, got in zip(expected, seen, strict=True):
        if ended_by and got.fate is not Fate.LOST:
            yield f"{want.seed}: {got.fate.name} behind the end by {ended_by}"
        if ended_by:
            continue
        if got.fate not in want.fates:
            allowed = sorted(fate.name for fate in want.fates)
            yield f"{want.seed}: {got.fate.name} ({got.status}), allowed {allowed}"
        if got.fate is Fate.REPLY and got.says_close != want.ends:
            yield f"{want.seed}: says_close is {got.says_close}"
        if got.fate is Fate.REFUSED and got.status != want.status:
            yield f"{want.seed}: status {got.status} instead of {want.status}"
        if got.fate in (Fate.CUT, Fate.LOST) and must_go_on:
            yield f"{want.seed}: ended by nobody"
        if got.says_close or got.fate in (Fate.CUT, Fate.LOST):
            ended_by = want.seed
