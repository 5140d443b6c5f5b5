import pytest

from sessions.core.open_sessions.registry import SessionRegistry
from sessions.errors.sessions import GoneSessionError, UnknownSessionError
from sessions.errors.unseen import LocalProtocolError


def registry_of(tombstones: int = 2) -> SessionRegistry:
    ids = iter(f"s{i}" for i in range(100))
    return SessionRegistry(lambda: next(ids), tombstones=tombstones)


def test_a_session_gets_a_minted_id_and_is_found_by_it():
    registry = registry_of()
    session = registry.create_session()
    assert session.session_id == "s0"
    assert registry.find("s0") is session
    assert len(registry) == 1


def test_an_id_that_was_never_open_is_unknown():
    with pytest.raises(UnknownSessionError) as caught:
        registry_of().find("x")
    assert caught.value.status == 404


def test_an_id_that_ended_is_gone_with_the_reason():
    registry = registry_of()
    session = registry.create_session("x")
    assert registry.end("x", "was deleted") is session
    assert session.is_ended
    assert len(registry) == 0
    with pytest.raises(GoneSessionError, match="session x was deleted") as caught:
        registry.find("x")
    assert caught.value.status == 410
    with pytest.raises(GoneSessionError):
        registry.end("x", "was deleted again")


def test_an_existing_id_is_refused_loudly_and_its_session_kept():
    registry = registry_of()
    session = registry.create_session("x")
    with pytest.raises(LocalProtocolError):
        registry.create_session("x")
    assert registry.find("x") is session


def test_an_ended_id_is_not_opened_again():
    registry = registry_of()
    registry.create_session("x")
    registry.end("x", "was deleted")
    with pytest.raises(LocalProtocolError):
        registry.create_session("x")


def test_the_oldest_tombstones_are_forgotten_first():
    registry = registry_of(tombstones=2)
    for name in ("a", "b", "c"):
        registry.create_session(name)
        registry.end(name, "was deleted")
    with pytest.raises(UnknownSessionError):
        registry.find("a")
    for name in ("b", "c"):
        with pytest.raises(GoneSessionError):
            registry.find(name)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def timed_registry() -> tuple[SessionRegistry, Clock]:
    clock = Clock()
    ids = iter(f"s{i}" for i in range(100))
    return SessionRegistry(lambda: next(ids), tombstones=10, now=clock), clock


def test_sessions_that_nobody_used_for_so_long_end_and_say_so():
    registry, clock = timed_registry()
    registry.create_session("idle")
    registry.create_session("used")
    clock.now += 9
    registry.find("used")
    clock.now += 1
    assert [session.session_id for session in registry.end_idle(10)] == ["idle"]
    with pytest.raises(GoneSessionError, match="expired: nobody used it for 10 s"):
        registry.find("idle")
    assert registry.end_idle(10) == []
    clock.now += 9
    assert [session.session_id for session in registry.end_idle(10)] == ["used"]
    assert len(registry) == 0


def test_a_session_with_a_turn_in_flight_does_not_expire():
    registry, clock = timed_registry()
    session = registry.create_session("busy")
    registry.create_session("idle")
    session.turns_in_flight = 1
    clock.now += 60
    assert [ended.session_id for ended in registry.end_idle(10)] == ["idle"]
    session.turns_in_flight = 0
    assert registry.end_idle(10) == []
    clock.now += 10
    assert registry.end_idle(10) == [session]


def test_a_session_that_is_touched_idles_anew_unless_it_ended():
    registry, clock = timed_registry()
    session = registry.create_session("a")
    clock.now += 9
    registry.touch(session)
    clock.now += 9
    assert registry.end_idle(10) == []
    clock.now += 1
    assert registry.end_idle(10) == [session]
    registry.touch(session)
    assert len(registry) == 0
