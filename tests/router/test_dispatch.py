"""The router's dispatcher with fakes: whom it chooses, what it says, what answers lead to."""

from __future__ import annotations

import itertools

import pytest

from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.episodes import McpSessionGoneError
from sessions.errors.group import GroupDyingError, NotReadyError, OverloadedError, ShardGoneError
from sessions.errors.unseen import LocalProtocolError
from sessions.lending.board import Phase, Row
from sessions.lending.messages import Claimed, Keep, Kind, LendFlag, Message, RefuseReason
from sessions.lending.place import Place
from sessions.lending.slots import SlotState
from sessions.router.dispatch import Dispatch
from sessions.router.shards import ShardLink
from sessions.routing.claim_keys import claim_key
from sessions.routing.claimed_kinds import (
    MCP_SESSIONS,
    ROLLOUT_STOPS,
    environment_kind,
    episode_kind,
)
from sessions.routing.ids import mint_session_id, owner_of
from sessions.routing.kinds import ROLLOUT, Named
from tests.support.fake_links import FakeConnection, channel_of, head_of, link_of

SHARDS = 4
HEAD = head_of()
PAYLOAD = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"


@pytest.fixture
def dispatch() -> Dispatch:
    """One whose shards have all said HELLO."""
    made = Dispatch(SHARDS)
    for index in (2, 0, 3, 1):
        made.add(link_of(index))
    return made


def named(session_id: str) -> Named:
    return Named(ROLLOUT, session_id)


def owned_by(index: int) -> Named:
    return named(mint_session_id(index, SHARDS))


def lend(dispatch: Dispatch, connection: FakeConnection, shard: int) -> Message:
    """Lend, and give what the shard is told."""
    dispatch.lend(connection.real, dispatch.links[shard].place, HEAD, PAYLOAD)
    return channel_of(dispatch.links[shard]).messages[-1]


def back(connection: FakeConnection, leftover: bytes = b"", keep: Keep = Keep.KEPT) -> Message:
    slot = connection.slot
    return Message(Kind.BACK, keep, slot.number, 0, slot.generation, leftover)


def refusal(connection: FakeConnection, reason: RefuseReason) -> Message:
    slot = connection.slot
    return Message(Kind.REFUSE, reason, slot.number, HEAD.size, slot.generation, PAYLOAD)


# --- choose


def test_a_session_goes_to_the_shard_that_its_id_hashes_to(dispatch: Dispatch) -> None:
    for number in range(200):
        session_id = f"session-{number}"
        assert dispatch.choose(named(session_id)).shard == owner_of(session_id, SHARDS)
    assert not any(dispatch.choose(owned_by(index)).is_newcomer for index in range(SHARDS))


def show(dispatch: Dispatch, *sessions: int, age_s: float = 0.0) -> None:
    """The board says how many sessions are open."""

    def row_of(index: int) -> Row:
        number = sessions[index] if sessions else 0
        return Row(phase=Phase.READY, pid=1, beat_age_s=age_s, sessions=number, requests=0)

    dispatch.refresh(row_of)


def arrive(
    dispatch: Dispatch, count: int, named: Named | None = None
) -> tuple[list[int], list[FakeConnection]]:
    """Lend requests to whom is chosen; the shards, and the connections."""
    connections = [FakeConnection(100 + next(_numbers)) for _ in range(count)]
    shards = []
    for connection in connections:
        place = dispatch.choose(named)
        dispatch.lend(connection.real, place, HEAD, PAYLOAD)
        shards.append(place.shard)
    return shards, connections


_numbers = itertools.count()


def test_requests_without_a_session_are_spread_over_equal_shards(dispatch: Dispatch) -> None:
    assert arrive(dispatch, 8)[0] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert [dispatch.choose(None).shard for _ in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_requests_without_a_session_go_to_the_shard_with_the_fewest(dispatch: Dispatch) -> None:
    show(dispatch, 9, 3, 9, 5)
    assert arrive(dispatch, 5)[0] == [1, 1, 3, 1, 3]
    show(dispatch, 9, 9, 0, 9)
    assert dispatch.choose(None).shard == 2


def test_a_request_that_ended_counts_until_the_board_can_have_its_session(
    dispatch: Dispatch,
) -> None:
    shards, connections = arrive(dispatch, 2)
    for shard, connection in zip(shards, connections, strict=True):
        dispatch.on_message(dispatch.links[shard], back(connection))
    show(dispatch, age_s=100.0)
    assert arrive(dispatch, 2)[0] == [2, 3]
    show(dispatch, 1, 0, 2, 2)
    assert dispatch.choose(None).shard == 1


def test_claims_count_as_soon_as_they_are_there_and_the_board_does_not(
    dispatch: Dispatch,
) -> None:
    dispatch.counts_claims = True
    show(dispatch, 9, 9, 0, 9)
    for number in range(3):
        claim(dispatch, 0, f"a-{number}", number)
    claim(dispatch, 1, "b")
    assert arrive(dispatch, 5)[0] == [2, 3, 1, 2, 3]
    word = Message(Kind.UNCLAIM, 0, 0, 0, 0, key_of("a-0"))
    for _ in range(2):
        dispatch.on_message(dispatch.links[0], word)
    assert arrive(dispatch, 4)[0] == [0, 1, 2, 3]


def test_a_claim_takes_the_place_of_the_request_that_made_it(dispatch: Dispatch) -> None:
    dispatch.counts_claims = True
    (shard,), (connection,) = arrive(dispatch, 1)
    claim(dispatch, shard)
    assert dispatch.links[shard].load.count == 1
    dispatch.on_message(dispatch.links[shard], back(connection))
    assert dispatch.links[shard].load.count == 1
    claim(dispatch, shard)
    assert dispatch.links[shard].load.count == 1, "refused: it is held"
    dispatch.on_message(dispatch.links[shard], Message(Kind.UNCLAIM, 0, 0, 0, 0, key_of()))
    assert dispatch.links[shard].load.count == 0


def test_a_claim_of_what_is_over_counts_no_more_and_is_still_found(dispatch: Dispatch) -> None:
    dispatch.counts_claims = True
    claim(dispatch, 2)
    assert dispatch.links[2].load.count == 1
    for kind in (Kind.END_CLAIM, Kind.END_CLAIM):
        dispatch.on_message(dispatch.links[2], Message(kind, 0, 0, 0, 0, key_of()))
        assert (dispatch.links[2].load.count, len(dispatch.claims)) == (0, 0)
    assert dispatch.choose(episode()).shard == 2
    dispatch.on_message(dispatch.links[2], Message(Kind.UNCLAIM, 0, 0, 0, 0, key_of()))
    assert (dispatch.links[2].load.count, len(dispatch.claims)) == (0, 0)
    assert dispatch.claims.find(key_of()) is None


@pytest.mark.parametrize("counts_claims", [False, True])
@pytest.mark.parametrize("ends", ["back", "gone"])
def test_a_request_counts_while_it_is_lent(
    dispatch: Dispatch, ends: str, *, counts_claims: bool
) -> None:
    dispatch.counts_claims = counts_claims
    (shard,), (connection,) = arrive(dispatch, 1)
    assert dispatch.links[shard].load.count == 1
    if ends == "back":
        dispatch.on_message(dispatch.links[shard], back(connection))
    else:
        dispatch.forget(connection.real)
    assert dispatch.links[shard].load.count == (0 if counts_claims else 1)
    show(dispatch)
    assert dispatch.links[shard].load.count == 0


@pytest.mark.parametrize("missing", range(SHARDS))
def test_nobody_is_chosen_before_every_shard_said_hello(missing: int) -> None:
    dispatch = Dispatch(SHARDS)
    for index in range(SHARDS):
        if index != missing:
            dispatch.add(link_of(index))
    assert not dispatch.is_ready
    for session in (None, owned_by((missing + 1) % SHARDS)):
        with pytest.raises(NotReadyError, match="starting"):
            dispatch.choose(session)
    dispatch.add(link_of(missing))
    assert dispatch.is_ready
    assert dispatch.choose(owned_by(missing)).shard == missing


@pytest.mark.parametrize("index", [-1, SHARDS, 0])
def test_a_hello_that_is_not_expected_is_an_error(dispatch: Dispatch, index: int) -> None:
    with pytest.raises(LocalProtocolError, match=f"HELLO of shard {index}"):
        dispatch.add(link_of(index))


@pytest.mark.parametrize("session", [None, owned_by(1)])
def test_nobody_is_chosen_while_draining(dispatch: Dispatch, session: Named | None) -> None:
    dispatch.close()
    with pytest.raises(NotReadyError, match="draining"):
        dispatch.choose(session)


@pytest.mark.parametrize("session", [None, owned_by(1)])
def test_a_dying_group_says_what_died_whatever_else_holds(
    dispatch: Dispatch, session: Named | None
) -> None:
    dispatch.close()
    dispatch.cause = "shard 2 (pid 7) died of signal 9"
    with pytest.raises(GroupDyingError, match=r"shard 2 \(pid 7\) died of signal 9"):
        dispatch.choose(session)


def test_an_owner_that_is_behind_refuses_for_now(dispatch: Dispatch) -> None:
    channel_of(dispatch.links[1]).is_over_limit = True
    with pytest.raises(OverloadedError, match="shard 1"):
        dispatch.choose(owned_by(1))
    assert dispatch.choose(owned_by(2)).shard == 2
    channel_of(dispatch.links[1]).is_over_limit = False
    assert dispatch.choose(owned_by(1)).shard == 1


def test_a_shard_that_is_behind_gets_no_request_that_another_can_serve(
    dispatch: Dispatch,
) -> None:
    show(dispatch, 0, 9, 9, 9)
    channel_of(dispatch.links[0]).is_over_limit = True
    assert dispatch.choose(None).shard == 1
    for link in dispatch.links.values():
        channel_of(link).is_over_limit = True
    with pytest.raises(OverloadedError):
        dispatch.choose(None)


def test_the_group_goes_on_without_a_buried_shard(dispatch: Dispatch) -> None:
    dead = dispatch.links[1]
    dispatch.lend(FakeConnection(5).real, dispatch.links[1].place, HEAD, PAYLOAD)
    show(dispatch, 5, 0, 5, 5)
    dispatch.bury(dead)
    assert not dead.copies
    assert dispatch.alive_count == SHARDS - 1
    assert channel_of(dead).is_closed
    assert dispatch.choose(None).shard == 0
    with pytest.raises(ShardGoneError, match=rf"shard 1 \(pid {dead.pid}\)"):
        dispatch.choose(owned_by(1))
    assert dispatch.choose(owned_by(3)).shard == 3


# --- lend, release, forget


def test_a_loan_carries_the_head_the_bytes_and_at_first_the_descriptor(
    dispatch: Dispatch,
) -> None:
    connection = FakeConnection(5, generation=7)
    dispatch.lend(connection.real, dispatch.links[2].place, HEAD, PAYLOAD)
    sent = channel_of(dispatch.links[2]).sent
    assert sent == [
        (Message(Kind.LEND, LendFlag.DESCRIPTOR, 5, HEAD.size, 8, PAYLOAD), connection.descriptor)
    ]
    assert connection.names == ["pause_reading"]
    assert dispatch.lent_count == 1
    dispatch.on_message(dispatch.links[2], back(connection))
    dispatch.lend(connection.real, dispatch.links[2].place, HEAD, PAYLOAD)
    assert sent[1:] == [(Message(Kind.LEND, 0, 5, HEAD.size, 9, PAYLOAD), None)]


def test_reading_stops_before_the_shard_is_told(dispatch: Dispatch) -> None:
    class Watching(FakeConnection):
        def pause_reading(self) -> None:
            assert not channel_of(dispatch.links[0]).sent
            super().pause_reading()

    connection = Watching()
    lend(dispatch, connection, 0)
    assert connection.names == ["pause_reading"]


@pytest.mark.parametrize("parked", [False, True])
def test_a_loan_of_a_group_that_leaves_says_that_it_is_the_last(*, parked: bool) -> None:
    leaving: list[None] = []
    dispatch = Dispatch(1, is_leaving=lambda: bool(leaving))
    dispatch.add(link_of(0))
    connection = FakeConnection()
    if parked:
        assert not lend(dispatch, connection, 0).argument & LendFlag.LAST
        dispatch.on_message(dispatch.links[0], back(connection))
    leaving.append(None)
    flags = lend(dispatch, connection, 0).argument
    assert flags == LendFlag.LAST | (0 if parked else LendFlag.DESCRIPTOR)


def test_every_holder_is_told_of_a_release(dispatch: Dispatch) -> None:
    dispatch.release(9, [0, 3])
    told = [
        [message.kind for message in channel_of(dispatch.links[index]).messages]
        for index in range(SHARDS)
    ]
    assert told == [[Kind.RELEASE], [], [], [Kind.RELEASE]]
    assert channel_of(dispatch.links[3]).messages[0].slot == 9


def test_a_connection_that_is_gone_is_no_loan_any_more(dispatch: Dispatch) -> None:
    connection, other = FakeConnection(1), FakeConnection(2)
    lend(dispatch, connection, 1)
    lend(dispatch, other, 1)
    dispatch.forget(connection.real)
    assert dispatch.lent_count == 1
    dispatch.on_message(dispatch.links[1], back(connection))
    assert connection.names == ["pause_reading"]


# --- BACK


@pytest.mark.parametrize("keep", Keep)
def test_an_exchange_that_is_over_goes_back_to_its_connection(
    dispatch: Dispatch, keep: Keep
) -> None:
    connection = FakeConnection()
    lend(dispatch, connection, 3)
    dispatch.on_message(dispatch.links[3], back(connection, b"left", keep))
    assert connection.calls[1:] == [("take_back", 3, b"left", keep is Keep.KEPT)]
    assert dispatch.lent_count == 0


def test_a_stale_back_is_ignored_and_the_loan_of_now_goes_on(dispatch: Dispatch) -> None:
    connection = FakeConnection(4)
    lend(dispatch, connection, 1)
    stale = back(connection)
    dispatch.on_message(dispatch.links[1], stale)
    lend(dispatch, connection, 1)
    dispatch.on_message(dispatch.links[1], stale)
    assert connection.names == ["pause_reading", "take_back", "pause_reading"]
    assert dispatch.lent_count == 1
    dispatch.on_message(dispatch.links[1], back(connection))
    assert dispatch.lent_count == 0


def test_a_back_about_an_earlier_connection_of_the_slot_is_ignored(dispatch: Dispatch) -> None:
    old = FakeConnection(4)
    lend(dispatch, old, 1)
    late = back(old)
    dispatch.forget(old.real)
    new = FakeConnection(4, generation=old.slot.generation)
    lend(dispatch, new, 1)
    dispatch.on_message(dispatch.links[1], late)
    assert new.names == ["pause_reading"]
    assert dispatch.lent_count == 1


def test_a_back_of_a_shard_that_does_not_have_the_connection_is_ignored(
    dispatch: Dispatch,
) -> None:
    connection = FakeConnection(4)
    lend(dispatch, connection, 1)
    dispatch.on_message(dispatch.links[2], back(connection))
    assert connection.names == ["pause_reading"]


# --- REFUSE


def test_a_loan_of_a_copy_that_is_gone_is_repeated_with_the_descriptor(
    dispatch: Dispatch,
) -> None:
    connection = FakeConnection()
    lend(dispatch, connection, 0)
    dispatch.on_message(dispatch.links[0], back(connection))
    lend(dispatch, connection, 0)
    dispatch.on_message(dispatch.links[0], refusal(connection, RefuseReason.NOT_PARKED))
    assert channel_of(dispatch.links[0]).sent[-1] == (
        Message(Kind.LEND, LendFlag.DESCRIPTOR, 0, HEAD.size, 3, PAYLOAD),
        connection.descriptor,
    )
    assert dispatch.links[0].loans[0].head is HEAD
    assert dispatch.lent_count == 1


def test_a_loan_whose_descriptor_did_not_arrive_is_answered(dispatch: Dispatch) -> None:
    connection = FakeConnection()
    lend(dispatch, connection, 0)
    dispatch.on_message(dispatch.links[0], refusal(connection, RefuseReason.NO_DESCRIPTOR))
    name, error, head, payload = connection.calls[-1]
    assert (name, head, payload) == ("answer_refused", HEAD, PAYLOAD)
    assert isinstance(error, OverloadedError)
    assert error.headers[-1] == ("retry-after", "1")
    assert connection.slot.state is SlotState.HEAD
    assert connection.slot.parked_shards == []
    assert not dispatch.links[0].loans
    assert not dispatch.links[0].copies


def test_a_stale_refusal_is_ignored(dispatch: Dispatch) -> None:
    connection = FakeConnection()
    lend(dispatch, connection, 0)
    stale = refusal(connection, RefuseReason.NOT_PARKED)
    dispatch.on_message(dispatch.links[0], back(connection))
    lend(dispatch, connection, 0)
    dispatch.on_message(dispatch.links[0], stale)
    assert connection.names[-1] == "pause_reading"


# --- claims

EPISODES = episode_kind("X-Token", b"secret")


def episode(name: str = "rollout-1") -> Named:
    return Named(EPISODES, name)


def key_of(name: str = "rollout-1") -> bytes:
    return claim_key(EPISODES.name, name)


def claim(dispatch: Dispatch, shard: int, name: str = "rollout-1", number: int = 1) -> Message:
    """Claim, and give the router's answer."""
    link = dispatch.links[shard]
    dispatch.on_message(link, Message(Kind.CLAIM, 0, 0, 0, number, key_of(name)))
    return channel_of(link).messages[-1]


def test_a_claim_is_seen_before_it_is_answered(dispatch: Dispatch) -> None:
    link = dispatch.links[2]
    seen: list[int] = []
    channel = channel_of(link)
    send = channel.send

    def choose_then_send(message: Message, descriptor: int | None = None) -> None:
        seen.append(dispatch.choose(episode()).shard)
        send(message, descriptor)

    channel.send = choose_then_send  # type: ignore[method-assign]
    assert claim(dispatch, 2, number=9) == Message(Kind.CLAIMED, Claimed.GRANTED, 2, 0, 9, b"")
    assert seen == [2]


def test_a_duplicate_is_told_who_holds_the_claim_and_the_first_keeps_it(
    dispatch: Dispatch,
) -> None:
    claim(dispatch, 2)
    assert claim(dispatch, 3, number=4) == Message(Kind.CLAIMED, Claimed.HELD, 2, 0, 4, b"")
    assert claim(dispatch, 2, number=5) == Message(Kind.CLAIMED, Claimed.HELD, 2, 0, 5, b"")
    assert dispatch.choose(episode()).shard == 2


def test_a_claim_is_answered_although_the_shard_is_behind(dispatch: Dispatch) -> None:
    channel_of(dispatch.links[2]).is_over_limit = True
    assert claim(dispatch, 2).argument == Claimed.GRANTED
    with pytest.raises(OverloadedError, match="shard 2"):
        dispatch.choose(episode())


def test_a_claim_is_released_by_its_holder_alone(dispatch: Dispatch) -> None:
    claim(dispatch, 2)
    for shard, chosen in ((1, 2), (2, 0)):
        word = Message(Kind.UNCLAIM, 0, 0, 0, 0, key_of())
        dispatch.on_message(dispatch.links[shard], word)
        assert dispatch.choose(episode()).shard == chosen
    assert len(dispatch.claims) == 0


def test_a_claim_that_was_given_up_in_a_word_still_unread_is_granted(dispatch: Dispatch) -> None:
    claim(dispatch, 2)
    holder = dispatch.links[2]
    unread = channel_of(holder)
    unread.to_read.append(Message(Kind.UNCLAIM, 0, 0, 0, 0, key_of()))
    unread.deliver = lambda message: dispatch.on_message(holder, message)
    assert claim(dispatch, 3).argument == Claimed.GRANTED
    assert dispatch.choose(episode()).shard == 3


def test_a_session_that_nobody_claims_goes_to_the_least_loaded(dispatch: Dispatch) -> None:
    assert [dispatch.choose(episode()).shard for _ in range(4)] == [0, 1, 2, 3]
    claim(dispatch, 3, "other")
    assert [dispatch.choose(episode("other")) for _ in range(3)] == [Place(shard=3)] * 3


def test_a_session_of_mcp_of_a_dead_shard_is_not_found(dispatch: Dispatch) -> None:
    named = Named(MCP_SESSIONS, "m")
    key = claim_key(named.kind.name, named.key)
    dispatch.claims.claim(key, 1)
    assert dispatch.choose(named).shard == 1
    dispatch.bury(dispatch.links[1])
    with pytest.raises(McpSessionGoneError, match=r"no longer running: shard 1 \(pid 501\)"):
        dispatch.choose(named)


def test_a_claim_of_a_dead_shard_is_gone_until_it_is_taken_again(dispatch: Dispatch) -> None:
    claim(dispatch, 1)
    claim(dispatch, 2, "other")
    dispatch.bury(dispatch.links[1])
    with pytest.raises(ShardGoneError, match=r"no longer running: shard 1 \(pid 501\)"):
        dispatch.choose(episode())
    assert dispatch.choose(episode("other")).shard == 2
    assert claim(dispatch, 3).argument == Claimed.GRANTED
    assert dispatch.choose(episode()).shard == 3


def test_a_session_of_another_kind_with_the_same_name_is_another(dispatch: Dispatch) -> None:
    claim(dispatch, 3)
    assert dispatch.choose(Named(ROLLOUT_STOPS, "rollout-1")).shard == 0


# --- not held (rule 14)

BODY_HEAD = head_of("POST", "/seed", b'{"id": "x"}')


def refer(dispatch: Dispatch, connection: FakeConnection, shard: int) -> None:
    """The shard read the body, and does not hold the session that it names."""
    dispatch.lend(connection.real, dispatch.links[shard].place, BODY_HEAD, PAYLOAD)
    slot = connection.slot
    payload = key_of() + PAYLOAD
    word = Message(
        Kind.REFUSE, RefuseReason.NOT_HELD, slot.number, BODY_HEAD.size, slot.generation, payload
    )
    dispatch.on_message(dispatch.links[shard], word)


FOR_GOOD = LendFlag.FINAL | LendFlag.RESERVED


@pytest.mark.parametrize(("holder", "flags"), [(3, FOR_GOOD | LendFlag.DESCRIPTOR), (1, FOR_GOOD)])
def test_a_request_that_is_not_held_is_lent_for_good_to_the_holder(
    dispatch: Dispatch, holder: int, flags: int
) -> None:
    claim(dispatch, holder)
    connection = FakeConnection(5)
    refer(dispatch, connection, 1)
    lent = channel_of(dispatch.links[holder]).messages[-1]
    assert lent == Message(Kind.LEND, flags, 5, BODY_HEAD.size, 2, key_of() + PAYLOAD)
    assert connection.slot.is_lent_to(holder)
    assert dispatch.lent_count == 1
    assert dispatch.links[holder].loans[5].head is BODY_HEAD
    assert 1 in connection.slot.parked_shards


def test_a_request_that_nobody_holds_is_lent_for_good_where_it_came_from(
    dispatch: Dispatch,
) -> None:
    connection = FakeConnection(5)
    refer(dispatch, connection, 1)
    lent = channel_of(dispatch.links[1]).messages[-1]
    assert lent == Message(Kind.LEND, FOR_GOOD, 5, BODY_HEAD.size, 2, key_of() + PAYLOAD)
    assert dispatch.links[1].loans[5].place.is_newcomer


def test_a_request_whose_holder_died_is_answered(dispatch: Dispatch) -> None:
    claim(dispatch, 3)
    dispatch.bury(dispatch.links[3])
    connection = FakeConnection(5)
    refer(dispatch, connection, 1)
    name, error, head, payload = connection.calls[-1]
    assert (name, head, payload) == ("answer_refused", BODY_HEAD, PAYLOAD)
    assert isinstance(error, ShardGoneError)
    assert connection.slot.state is SlotState.HEAD
    assert dispatch.lent_count == 0


def test_a_request_whose_holder_is_behind_is_refused_for_now(dispatch: Dispatch) -> None:
    claim(dispatch, 3)
    channel_of(dispatch.links[3]).is_over_limit = True
    connection = FakeConnection(5)
    refer(dispatch, connection, 1)
    name, error, head, payload = connection.calls[-1]
    assert (name, head, payload) == ("answer_refused", BODY_HEAD, PAYLOAD)
    assert isinstance(error, OverloadedError)
    assert not dispatch.links[3].loans


def test_a_loan_for_good_stays_one_when_it_is_repeated(dispatch: Dispatch) -> None:
    connection = FakeConnection(5)
    refer(dispatch, connection, 1)
    dispatch.on_message(dispatch.links[1], refusal(connection, RefuseReason.NOT_PARKED))
    lent = channel_of(dispatch.links[1]).messages[-1]
    flags = FOR_GOOD | LendFlag.DESCRIPTOR
    assert lent == Message(Kind.LEND, flags, 5, BODY_HEAD.size, 3, key_of() + PAYLOAD)
    assert claim(dispatch, 2).argument == Claimed.HELD
    dispatch.on_message(dispatch.links[1], back(connection))
    assert claim(dispatch, 2).argument == Claimed.GRANTED


def test_all_who_name_a_session_that_nobody_holds_meet_in_one_shard(dispatch: Dispatch) -> None:
    connections = [FakeConnection(number) for number in range(4)]
    for shard, connection in enumerate(connections):
        refer(dispatch, connection, shard)
    assert [link.index for link in dispatch.links.values() if link.loans] == [0]
    assert claim(dispatch, 2) == Message(Kind.CLAIMED, Claimed.HELD, 0, 0, 1, b"")
    assert claim(dispatch, 0).argument == Claimed.GRANTED


# --- sessions that are opened by their names

ENVIRONMENTS = environment_kind(cookie="c", token_header="x-t")


def environment(name: str = "s1") -> Named:
    return Named(ENVIRONMENTS, name)


def test_who_names_a_session_that_is_being_opened_goes_where_it_is(dispatch: Dispatch) -> None:
    key = claim_key(ENVIRONMENTS.name, "s1")
    show(dispatch, 9, 9, 0, 9)
    place = dispatch.choose(environment())
    assert place == Place(shard=2, key=key, is_newcomer=True)
    connection = FakeConnection(5)
    dispatch.lend(connection.real, place, HEAD, PAYLOAD)
    (lent,) = channel_of(dispatch.links[2]).messages
    assert dispatch.links[2].load.count == 1
    flags = LendFlag.RESERVED | LendFlag.DESCRIPTOR
    assert lent == Message(Kind.LEND, flags, 5, HEAD.size, 1, key + PAYLOAD)
    show(dispatch, 0, 9, 9, 9)
    assert dispatch.choose(environment()) == Place(shard=2, key=key)
    assert dispatch.choose(environment("other")).shard == 0
    dispatch.on_message(dispatch.links[2], back(connection))
    assert dispatch.choose(environment()).shard == 0


def test_what_a_session_is_held_by_is_kept_while_somebody_names_it(dispatch: Dispatch) -> None:
    """It may end while a request is on its way that opens it again."""
    key = claim_key(ENVIRONMENTS.name, "s1")
    dispatch.on_message(dispatch.links[3], Message(Kind.CLAIM, 0, 0, 0, 1, key))
    connection = FakeConnection(5)
    dispatch.lend(connection.real, dispatch.choose(environment()), HEAD, PAYLOAD)
    dispatch.on_message(dispatch.links[3], Message(Kind.UNCLAIM, 0, 0, 0, 0, key))
    assert dispatch.choose(environment()).shard == 3
    dispatch.forget(connection.real)
    assert dispatch.choose(environment()).shard == 0


def test_a_session_that_servers_name_is_kept_for_nobody(dispatch: Dispatch) -> None:
    """A call of an ended attempt must not stand in the way of who claims it anew."""
    place = dispatch.choose(episode())
    assert place == Place(shard=0, is_newcomer=True)
    dispatch.lend(FakeConnection(5).real, place, HEAD, PAYLOAD)
    assert claim(dispatch, 2).argument == Claimed.GRANTED


def test_what_is_reserved_for_the_dead_is_free(dispatch: Dispatch) -> None:
    dispatch.lend(FakeConnection(5).real, dispatch.choose(environment()), HEAD, PAYLOAD)
    dispatch.bury(dispatch.links[0])
    assert dispatch.choose(environment()).shard == 1


# --- WISH_RELEASE (rule 9)


def wish(connection: FakeConnection) -> Message:
    return Message(Kind.WISH_RELEASE, 0, connection.slot.number, 0, 1, b"")


def test_a_wish_for_a_parked_copy_is_granted_once(dispatch: Dispatch) -> None:
    connection = FakeConnection(6)
    lend(dispatch, connection, 2)
    dispatch.on_message(dispatch.links[2], back(connection))
    for _ in range(2):
        dispatch.on_message(dispatch.links[2], wish(connection))
    kinds = [message.kind for message in channel_of(dispatch.links[2]).messages]
    assert kinds == [Kind.LEND, Kind.RELEASE]
    assert connection.slot.parked_shards == []
    assert lend(dispatch, connection, 2).argument == LendFlag.DESCRIPTOR


def test_a_wish_that_crosses_a_loan_is_not_granted(dispatch: Dispatch) -> None:
    connection = FakeConnection(6)
    lend(dispatch, connection, 2)
    dispatch.on_message(dispatch.links[2], back(connection))
    lend(dispatch, connection, 2)
    dispatch.on_message(dispatch.links[2], wish(connection))
    assert channel_of(dispatch.links[2]).messages[-1].kind == Kind.LEND
    assert connection.slot.parked_shards == [2]


@pytest.mark.parametrize("ends", ["released", "lost", "never there"])
def test_a_wish_for_a_copy_that_is_not_there_means_nothing(dispatch: Dispatch, ends: str) -> None:
    connection = FakeConnection(6)
    link = dispatch.links[2]
    if ends != "never there":
        lend(dispatch, connection, 2)
        keep = Keep.KEPT if ends == "released" else Keep.LOST
        dispatch.on_message(link, back(connection, keep=keep))
    if ends == "released":
        dispatch.release(6, connection.slot.close())
    before = len(channel_of(link).messages)
    dispatch.on_message(link, wish(connection))
    assert len(channel_of(link).messages) == before
    assert not link.copies


# --- a broken shard


@pytest.mark.parametrize(
    "kind",
    [
        Kind.HELLO,
        Kind.LEND,
        Kind.RELEASE,
        Kind.DATA,
        Kind.CLAIMED,
        Kind.CLAIM,
        Kind.UNCLAIM,
        Kind.END_CLAIM,
        99,
    ],
)
def test_a_word_that_no_shard_says_is_an_error(dispatch: Dispatch, kind: int) -> None:
    """A claim without a key is none."""
    link: ShardLink = dispatch.links[0]
    with pytest.raises(LocalProtocolError, match="from shard 0"):
        dispatch.on_message(link, Message(kind, 0, 0, 0, 0, b""))


def test_every_refusal_to_choose_is_something_a_client_may_see(dispatch: Dispatch) -> None:
    dispatch.cause = "x"
    with pytest.raises(ClientVisibleError):
        dispatch.choose(None)
