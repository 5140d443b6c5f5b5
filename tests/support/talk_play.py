"""Plays one script of the model of conversations on a real group, and compares at each step.

Every request is told to the model first; then the group must do what the model says. The engine
is held back, so the script decides in which order turns end. Where several things happen at once
the order is not known: it is observed, and the model must allow it.

Spec: docs/sessions.md#model
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sessions.client.answers import sampled_ids
from tests.support.model_arena import wait_for
from tests.support.raw import Address
from tests.support.talk import CLIENTS_TEMPERATURE, Talk, due_of, shown_by
from tests.support.talk_client import Client, Outcome, ask, bare, start_client
from tests.support.talk_engine import ATTEMPT, Asked, GatedEngine
from tests.support.talk_model import Encode, SessionModel, Turn, Verdict, is_same
from tests.support.talk_says import FAULTS, said_of, script_of

Count = Counter[tuple[str, str, str]]  # mode, step, outcome

_REFUSED_TURNS: Final = (
    "history_mismatch",
    "turn_truncated",
    "turn_limit_reached",
    "token_limit_reached",
)


class Player:
    """See the module docstring.

    Attributes:
        talks: The sessions.
        ends: How its turns ended: `recorded`, `unrecorded`, `failed`, `perhaps failed`.
    """

    def __init__(
        self,
        address: Address,
        engine: GatedEngine,
        encode: Encode,
        count: Count,
        *,
        cancels: bool,
    ) -> None:
        self._address = address
        self._engine = engine
        self._encode = encode
        self._count = count
        self._cancels = cancels
        self._serial = 0
        self._begun: list[str] = []
        self.talks: list[Talk] = []
        self.ends: Counter[str] = Counter()

    async def open(self, options: dict[str, Any], *, has_tools: bool) -> None:
        """Open a session with the body of `POST /sessions`."""
        body = json.dumps(options).encode()
        status, created = await ask(self._address, "POST", "/sessions", body)
        assert status == 200, created
        model = SessionModel(
            encode=self._encode,
            is_tree=options.get("mode") == "tree",
            has_tools=has_tools,
            max_turns=options.get("max_turns", 0),
            max_tokens=options.get("max_session_tokens", 0),
        )
        path = f"/sessions/{created['session_id']}"
        temperature = options.get("sampling", {}).get("temperature", CLIENTS_TEMPERATURE)
        self.talks.append(Talk(path=path, model=model, temperature=temperature))

    # --- attempts

    async def send(self, talk: Talk, shape: str, said: str, form: str, mark: str) -> Turn | None:
        """One attempt; the turn that it began."""
        body, sent = talk.request(shape, said, form)
        mark = talk.mark(shape, mark)
        name, client = self._attempt(talk, shape, body, mark, form)
        verdict = talk.model.attempt(name, body, sent, mark)
        await self._meet(talk, client, verdict)
        return verdict.turn if verdict.is_ == "begins" else None

    async def rush(self, talk: Talk, saids: Sequence[str], form: str, mark: str) -> None:
        """Attempts at the next turn at the same moment; which one comes first is observed."""
        made = []
        for said in saids:
            body, sent = talk.request("next", said, form)
            made.append((body, sent, *self._attempt(talk, "rush", body, mark, form)))
        verdicts = [talk.model.attempt(name, b, s, mark) for b, s, name, _ in made]
        begun = [verdict.turn for verdict in verdicts if verdict.is_ == "begins"]
        names = {name for *_, name, _ in made}

        def arrived() -> list[Asked]:
            return [asked for asked in self._engine.asked if asked.name in names]

        await self._engine.wait_for(lambda: len(arrived()) >= len(begun), "the rush is asked")
        for asked in arrived():  # whoever came first asks, with what all of them sent
            same = [t for t in begun if t is not None and t.prompt == asked.body["input_ids"]]
            assert same, "nobody's turn was asked"
            same[0].name = asked.name
            begun.remove(same[0])
        for (*_, client), verdict in zip(made, verdicts, strict=True):
            await self._meet(talk, client, verdict)

    def _attempt(
        self, talk: Talk, shape: str, body: bytes, mark: str, form: str = ""
    ) -> tuple[str, Client]:
        self._serial += 1
        name = f"t{self._serial}"
        headers = [(ATTEMPT, name)]
        if mark == "again":
            headers.append(("x-stainless-retry-count", "1"))
        elif mark != "first":
            headers.append(("idempotency-key", mark))
        marked = f"marked {mark if mark in ('first', 'again') else 'key'}"
        labels = [shape, marked, *([form] if form else [])]
        client = start_client(self._address, talk.path, body, headers, labels)
        client.task.add_done_callback(lambda _: self._engine.note_change())
        return name, client

    async def _meet(self, talk: Talk, client: Client, verdict: Verdict) -> None:
        """Wait until an attempt is where the model says that it is."""
        turn = verdict.turn
        if verdict.is_ == "refused":
            due = Outcome(
                status=verdict.status, code=verdict.code, is_recorded=talk.model.is_deleted
            )
            self._check(talk, client, await client.task, due, verdict.code)
            if verdict.code in _REFUSED_TURNS:
                # Those that come at once and are the same may have been one.
                self.ends["perhaps failed" if "rush" in client.labels else "failed"] += 1
            return
        assert turn is not None
        if verdict.is_ == "again":
            due = Outcome(status=200, is_recorded=True, message=turn.reply)
            self._check(talk, client, await client.task, due, "repeated")
            return
        client.turn = turn
        talk.clients.append(client)
        if verdict.is_ == "joins":
            await client.sent.wait()
            await self._go_round(talk)
            assert not client.task.done(), (client.task.result(), "instead of joining")
            self._note(talk, client, "joined")
            return
        self._begun.append(turn.name)
        await self._engine.wait_for(
            lambda: bool(self._engine.of(turn.name)) or client.task.done(), f"{turn.name} is asked"
        )
        assert not client.task.done(), (client.task.result(), "instead of a turn")
        assert self._engine.of(turn.name)[0].body["input_ids"] == turn.prompt

    async def _go_round(self, talk: Talk) -> None:
        """What was sent so far is known to the shard when others have their answers."""
        for _ in range(2):
            await ask(self._address, "GET", f"{talk.path}?fields=metadata")

    # --- ends

    async def end(self, talk: Talk, turn: Turn, does: str) -> None:
        """The engine ends one turn."""
        await self.race(talk, [(turn, does)])

    async def race(self, talk: Talk, ends: list[tuple[Turn, str]]) -> None:
        """The engine ends turns at the same moment; which of them is recorded is observed."""
        model, good, hidden = talk.model, list[Turn](), list[Turn]()
        for turn, does in ends:
            if len(ends) > 1 or does in FAULTS or not model.can_commit(turn):
                await self._attend(talk, turn)
                if not talk.waiting_for(turn) and not model.is_deleted:
                    hidden.append(turn)
        ends = [(turn, does) for turn, does in ends if turn not in hidden]
        for turn, does in ends:
            if does in FAULTS:
                self._count[talk.mode, "engine", does] += 1
                self.ends["failed"] += 1
                self._release(turn, {"fault": FAULTS[does][0]})
                model.drop(turn)
                continue
            self._serial += 1
            model.answer(turn, said_of(does, self._serial, has_tools=model.has_tools))
            self._release(turn, script_of(turn, does))
            self._count[talk.mode, "engine", does] += 1
            good.append(turn)
        for turn, does in ends:
            if does in FAULTS:
                status, code = FAULTS[does][1]
                due = Outcome(status=status, code=code, is_recorded=False)
                await self._hand_out(talk, turn, due, "failed")
        await self._decide(talk, good)

    async def storm(self, talk: Talk, saids: Sequence[str], form: str) -> None:
        """Attempts at the next turn at the same moment, at an engine that answers at once.

        Some may be planned when others are recorded already; which ones, is observed.
        """
        model, made = talk.model, []
        if model.running or model.max_turns or model.max_tokens or model.may_fill_up(len(saids)):
            return
        for said in saids:
            body, sent = talk.request("next", said, form)
            name, client = self._attempt(talk, "storm", body, "first", form)
            made.append((client, model.attempt(name, body, sent, "first")))
        begun = [verdict.turn for _, verdict in made if verdict.turn is not None]
        for turn in begun:
            self._serial += 1
            model.answer(turn, said_of("talks", self._serial, has_tools=False))
        await asyncio.gather(*(self._answer_at_once(turn) for turn in begun))
        for client, verdict in made:
            client.turn = verdict.turn
            if verdict.turn is None:
                await self._meet(talk, client, verdict)
            else:
                talk.clients.append(client)
        await self._decide(talk, begun, is_storm=True)

    async def _answer_at_once(self, turn: Turn) -> None:
        self._begun.append(turn.name)
        await self._engine.wait_for(lambda: bool(self._engine.of(turn.name)), "a storm is asked")
        self._release(turn, script_of(turn, "talks"))

    async def _decide(self, talk: Talk, good: list[Turn], *, is_storm: bool = False) -> None:
        """Which of the answered turns are recorded, as observed; the model must allow it."""
        model = talk.model
        recorded = [turn for turn in good if await self._is_recorded(talk, turn)]
        if len(recorded) > 1:
            order = [sampled_ids(record) for record in (await self._read(talk))["records"]]
            # What is not there was replaced by one that is.
            recorded.sort(key=lambda t: order.index(t.sampled) if t.sampled in order else -1)
        for turn in recorded:
            if is_storm:
                turn.head = model.head  # it was planned when this was recorded already
            assert model.can_commit(turn), f"{turn.name} was recorded"
            model.commit(turn)
        for turn in good:
            assert turn in recorded or not model.can_commit(turn), f"{turn.name} was not recorded"
            due = Outcome(status=200, is_recorded=turn in recorded, message=turn.reply)
            what = "recorded" if turn in recorded else "unrecorded"
            self.ends[what] += 1
            await self._hand_out(talk, turn, due, what)
            if turn not in recorded:
                talk.lost = turn.conversation

    async def _attend(self, talk: Talk, turn: Turn) -> None:
        """Have a client that sees how the turn ends, if one can join it.

        None can if another turn of the same body is newer; then this one is left as it is.
        """
        model = talk.model
        if talk.waiting_for(turn) or model.is_deleted:
            return
        if model.like(turn.body, turn.key, is_retry=True) is not turn:
            return  # another one of the same body is in its way
        _, client = self._attempt(talk, "late", turn.body, turn.key or "again")
        await self._meet(talk, client, Verdict(is_="joins", turn=turn))

    def _release(self, turn: Turn, script: dict[str, Any]) -> None:
        asked = self._engine.of(turn.name)
        assert len(asked) == 1, f"{turn.name} was asked {len(asked)} times"
        asked[0].script.set_result(script)

    async def _is_recorded(self, talk: Talk, turn: Turn) -> bool:
        """Whether it was, as clients or records say; takes over the ids of its calls."""
        outcomes = [await client.task for client in talk.waiting_for(turn)]
        if outcomes:
            assert {outcome.status for outcome in outcomes} == {200}, outcomes
            said = outcomes[0].message
            assert len({outcome.is_recorded for outcome in outcomes}) == 1, outcomes
        elif talk.model.is_deleted:
            return False
        else:

            async def is_there() -> bool:
                records = (await self._read(talk))["records"]
                return bool(records) and sampled_ids(records[-1]) == turn.sampled

            await wait_for(is_there, f"{turn.name} is recorded without a client")
            await self._go_round(talk)
            self._count[talk.mode, "alone", "recorded"] += 1
            record = (await self._read(talk))["records"][-1]
            said = bare(record["response"]["choices"][0]["message"])
        if "tool_calls" in turn.reply and said is not None and said.get("tool_calls"):
            turn.reply["tool_calls"][0]["id"] = said["tool_calls"][0]["id"]
        return outcomes[0].is_recorded if outcomes else True

    def _note(self, talk: Talk, client: Client, what: str) -> None:
        for label in client.labels:
            self._count[talk.mode, label, what] += 1

    async def _hand_out(self, talk: Talk, turn: Turn, due: Outcome, what: str) -> None:
        for client in talk.waiting_for(turn):
            talk.clients.remove(client)
            self._check(talk, client, await client.task, due, what)

    def _check(self, talk: Talk, client: Client, got: Outcome, due: Outcome, what: str) -> None:
        self._note(talk, client, what)
        if got.status == 0 and due.status != 200:  # the stream had begun: its status is no more
            self._count[talk.mode, "late stream", "failed"] += 1
            got = replace(
                got, status=due.status, code=due.code if due.code == "engine" else got.code
            )
        assert (got.status, got.code, got.is_recorded) == (due.status, due.code, due.is_recorded)
        assert (got.message is None) == (due.message is None)
        if got.message is not None and due.message is not None:
            assert is_same(got.message, due.message), (got.message, due.message)

    # --- others

    async def hang_up(self, talk: Talk, index: int) -> None:
        """One client that waits is gone; its turn with it if that is the rule."""
        if not talk.clients:
            return
        client = talk.clients.pop(index % len(talk.clients))
        turn = client.turn
        assert turn is not None
        client.task.cancel()
        await asyncio.wait([client.task])
        if not self._cancels or talk.waiting_for(turn):
            self._count[talk.mode, "hang up", "turn goes on"] += 1
            return
        asked = self._engine.of(turn.name)[0]
        await self._engine.wait_for(lambda: asked.is_left, f"{turn.name} is cancelled")
        await self._go_round(talk)
        talk.model.drop(turn)
        self.ends["failed"] += 1
        self._count[talk.mode, "hang up", "turn cancelled"] += 1

    async def delete(self, talk: Talk) -> None:
        """End a session; again, it is gone."""
        status, told = await ask(self._address, "DELETE", talk.path)
        if talk.model.is_deleted:
            assert (status, told["error"]["code"]) == (410, "session_gone")
        else:
            assert status == 204
        self._count[talk.mode, "delete", str(status)] += 1
        talk.model.is_deleted = True

    async def stranger(self, talk: Talk) -> None:
        """A session that never was, and a body that is none: nothing of it leaves a trace."""
        other = replace(talk, path=f"{talk.path}x", model=SessionModel(self._encode))
        _, client = self._attempt(other, "stranger", b'{"messages": []}', "first")
        due = Outcome(status=404, code="session_not_found", is_recorded=True)
        self._check(talk, client, await client.task, due, due.code)
        if talk.model.is_deleted:
            return
        _, client = self._attempt(talk, "wrong", b'{"messages": []}', "first")
        due = Outcome(status=400, code="invalid_request", is_recorded=False)
        self._check(talk, client, await client.task, due, due.code)

    # --- records

    async def _read(self, talk: Talk) -> dict[str, Any]:
        status, found = await ask(self._address, "GET", talk.path)
        assert status == 200, found
        told: dict[str, Any] = found
        return told

    async def look(self, talk: Talk) -> None:
        """The session is what the model says."""
        if talk.model.is_deleted:
            status, told = await ask(self._address, "GET", talk.path)
            assert (status, told["error"]["code"]) == (410, "session_gone")
            self._count[talk.mode, "look", "session_gone"] += 1
            return
        found, turns = await self._read(talk), talk.model.turns
        assert shown_by(found) == due_of(talk)
        self._count[talk.mode, "look", f"{min(len(turns), 4)} turns"] += 1

    async def finish(self) -> None:
        """End what is left, then compare all."""
        for talk in self.talks:
            while talk.model.running:
                await self.end(talk, talk.model.running[-1], "talks")
            await self.look(talk)
        asked = [asked.name for asked in self._engine.asked]
        assert sorted(asked) == sorted(self._begun), "each turn is asked for once"

    async def close(self) -> None:
        """Forget what was asked, and end the clients that are left when a script failed."""
        self._engine.asked.clear()
        for talk in self.talks:
            for client in talk.clients:
                client.task.cancel()
            await asyncio.gather(*(c.task for c in talk.clients), return_exceptions=True)
