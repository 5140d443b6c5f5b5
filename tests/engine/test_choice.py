from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.engine.choice import AFFINITIES, DEAD_S, EngineChoice


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def choice_of(count: int, affinities: int = AFFINITIES) -> tuple[EngineChoice, Clock]:
    clock = Clock()
    return EngineChoice(count, affinities=affinities, now=clock), clock


def test_a_session_goes_to_the_least_loaded_engine_and_stays_there():
    choice, _ = choice_of(3)
    assert choice.choose("a", [5, 1, 2], ()) == 1
    assert choice.choose("a", [0, 9, 0], ()) == 1
    assert choice.choose("b", [1, 9, 0], ()) == 2


def test_equals_are_chosen_by_turns():
    choice, _ = choice_of(3)
    chosen = [choice.choose(f"s{n}", [0, 0, 0], ()) for n in range(6)]
    assert sorted(chosen, key=str) == [0, 0, 1, 1, 2, 2]


def test_a_request_of_no_session_is_not_remembered():
    choice, _ = choice_of(2)
    assert choice.choose("", [0, 1], ()) == 0
    assert choice.choose("", [1, 0], ()) == 1
    assert len(choice) == 0


def test_the_session_of_a_dead_engine_chooses_again_and_stays_there():
    choice, clock = choice_of(2)
    assert choice.choose("a", [0, 1], ()) == 0
    choice.mark_dead(0)
    assert choice.choose("a", [0, 9], {0}) == 1
    clock.now += DEAD_S
    choice.mark_alive(0)
    assert choice.choose("a", [0, 9], ()) == 1


def test_a_dead_engine_is_left_alone_for_its_time_and_then_tried_by_one_request():
    choice, clock = choice_of(2)
    choice.mark_dead(0)
    clock.now += DEAD_S - 0.01
    assert choice.choose("", [0, 9], ()) == 1
    clock.now += 0.01
    assert choice.choose("", [0, 9], ()) == 0
    assert choice.choose("", [0, 9], ()) == 1
    choice.mark_alive(0)
    assert choice.choose("", [0, 9], ()) == 0


def test_a_request_that_failed_at_all_engines_that_live_gives_up():
    choice, _ = choice_of(3)
    choice.mark_dead(2)
    assert choice.choose("a", [0, 0, 0], {0, 1}) is None


def test_with_all_engines_dead_a_request_tries_the_one_that_is_longest_so():
    choice, clock = choice_of(2)
    choice.mark_dead(1)
    clock.now += 1
    choice.mark_dead(0)
    assert choice.choose("", [0, 0], ()) == 1
    clock.now += 1
    assert choice.choose("", [0, 0], {1}) is None
    assert choice.choose("", [0, 0], ()) == 0


def test_one_engine_alone_is_always_tried_and_once():
    choice, _ = choice_of(1)
    choice.mark_dead(0)
    assert choice.choose("a", [0], ()) == 0
    assert choice.choose("a", [0], {0}) is None


def test_the_session_unused_for_longest_is_forgotten_beyond_the_limit():
    choice, _ = choice_of(2, affinities=2)
    assert choice.choose("a", [0, 1], ()) == 0
    assert choice.choose("b", [0, 1], ()) == 0
    assert choice.choose("a", [1, 0], ()) == 0
    assert choice.choose("c", [0, 1], ()) == 0
    assert len(choice) == 2
    assert choice.choose("a", [1, 0], ()) == 0
    assert choice.choose("b", [1, 0], ()) == 1


def test_a_session_that_ended_is_forgotten():
    choice, _ = choice_of(2)
    choice.choose("a", [0, 1], ())
    choice.forget("a")
    choice.forget("unknown")
    assert len(choice) == 0


@settings(derandomize=True, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", ""]),
            st.lists(st.integers(0, 3), min_size=3, max_size=3),
            st.sets(st.integers(0, 2)),
            st.floats(0, 4),
        )
    )
)
def test_a_request_always_gets_an_engine_and_meets_none_twice(
    requests: list[tuple[str, list[int], set[int], float]],
):
    choice, clock = choice_of(3)
    for affinity, loads, down, pause in requests:
        clock.now += pause
        tried: list[int] = []
        while (found := choice.choose(affinity, loads, tried)) is not None:
            assert found not in tried
            if found not in down:
                choice.mark_alive(found)
                break
            choice.mark_dead(found)
            tried.append(found)
        assert tried or found is not None
