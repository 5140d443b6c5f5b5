"""Scripts of conversations: which sessions are opened, and what happens to them, by a number.

Drawn with `random`, not with hypothesis: nothing is made shorter when a script fails, and where
hypothesis varies scripts that it has had, these all differ.

Spec: docs/sessions.md#model
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

from tests.support.talk import OWN_TEMPERATURE
from tests.support.talk_play import Player
from tests.support.talk_says import FAULTS, SAYS

Step = tuple[Any, ...]

# How an attempt's messages stand to what is recorded.
SHAPES: Final = (
    "next",  # all of it, and one message more
    "again",  # the very request of the newest turn, in flight or recorded
    "repeat",  # the very request of the newest recorded turn
    "retry",  # the same, marked as its retry
    "back",  # without the last turn
    "deep",  # without the last two
    "root",  # from the start
    "other",  # from a turn in the middle
    "edited",  # the last reply in other words
    "lost",  # from a reply that was not recorded
)
_WEIGHTS: Final = {
    "next": 30,  # a turn that nothing disturbs
    "turn": 30,  # any attempt, and the end of the turn that it begins
    "send": 20,  # any attempt
    "end": 12,
    "race": 8,
    "rush": 6,
    "storm": 5,
    "hang up": 10,
    "look": 4,
    "stranger": 1,
    "delete": 3,
}
_MARKS: Final = ("first", "first", "first", "again", "again", "k1", "k2", "k3")
_DOES: Final = (*["talks"] * 4, *SAYS, *SAYS, *FAULTS)
_STEPS: Final = (8, 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One script.

    Attributes:
        openings: Options of each session, and whether its agent has tools.
        steps: (name, index of the session, what else it needs).
    """

    openings: tuple[tuple[dict[str, Any], bool], ...]
    steps: tuple[Step, ...]


def script_of(seed: str) -> Script:
    """The script of a seed; always the same one."""
    rng = random.Random(seed)
    names = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=rng.randint(*_STEPS))
    return Script(
        openings=tuple((_options(rng), rng.random() < 0.5) for _ in range(2)),
        steps=tuple((name, rng.randrange(2), *_given(rng, name)) for name in names),
    )


def _options(rng: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {"mode": rng.choice(["linear", "linear", "tree"])}
    limit = rng.choice(["", "", "", "turns", "tokens", "tokens"])
    if limit == "turns":
        options["max_turns"] = rng.randint(1, 5)
    if limit == "tokens":
        options["max_session_tokens"] = rng.randint(30, 250)
    if rng.random() < 0.5:
        options["sampling"] = {"temperature": OWN_TEMPERATURE}
    return options


def _given(rng: random.Random, name: str) -> Step:
    """What a step needs besides its session."""
    said, form, does = rng.choice("ab"), rng.choice(["plain", "stream"]), rng.choice(_DOES)
    shape = rng.choice([*["next"] * 6, *SHAPES, "again", "retry", "back"])
    mark, index = rng.choice(_MARKS), rng.randrange(4)
    crowd, marked = rng.choice(["aa", "ab", "aab", "abc"]), rng.choice(["first", "again"])
    given: dict[str, Step] = {
        "next": ("next", said, form, "first", rng.choice(SAYS)),
        "turn": (shape, said, form, mark, does),
        "send": (shape, said, form, mark),
        "end": (index, does),
        "race": (does,),
        "rush": (crowd, form, marked),
        "storm": ("abcd"[: 2 + index // 2], form),
        "hang up": (index,),
    }
    return given.get(name, ())


async def play(player: Player, script: Script) -> None:
    """Play one script.

    Raises:
        AssertionError: The group did what the model does not say.
    """
    try:
        for options, has_tools in script.openings:
            await player.open(options, has_tools=has_tools)
        for step in script.steps:
            await _step(player, step)
        await player.finish()
    finally:
        await player.close()


async def _step(player: Player, step: Step) -> None:
    name, which, *given = step
    talk = player.talks[which]
    running = talk.model.running
    match name:
        case "next" | "turn":
            *attempt, does = given
            turn = await player.send(talk, *attempt)
            if turn is not None:
                await player.end(talk, turn, does)
        case "send":
            await player.send(talk, *given)
        case "end" if running:
            index, does = given
            await player.end(talk, running[index % len(running)], does)
        case "race" if running:
            ends = [(turn, given[0] if place else "talks") for place, turn in enumerate(running)]
            await player.race(talk, ends)
        case "rush":
            await player.rush(talk, *given)
        case "storm":
            await player.storm(talk, *given)
        case "hang up":
            await player.hang_up(talk, *given)
        case "look":
            await player.look(talk)
        case "stranger":
            await player.stranger(talk)
        case "delete":
            await player.delete(talk)
