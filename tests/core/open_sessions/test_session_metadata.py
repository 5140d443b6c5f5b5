from collections.abc import Callable
from typing import Any

from sessions.core.open_sessions.session_metadata import SessionMetadata
from tests.support.desk import Desk

OpenDesk = Callable[..., Any]


async def read(desk: Desk, session_id: str) -> tuple[SessionMetadata, dict[str, Any]]:
    session = desk.registry.find(session_id)
    metadata = SessionMetadata(desk.prompts)
    return metadata, await metadata.read(session, session.history.nodes)


async def test_an_empty_session_has_no_tokens_and_nothing_to_compare(open_desk: OpenDesk):
    async with open_desk() as desk:
        _, found = await read(desk, desk.open())
        assert found == {"accumulated_token_ids": [], "max_trim_tokens": 0}


async def test_the_tokens_are_those_of_the_newest_checkpoint(open_desk: OpenDesk):
    async with open_desk() as desk:
        session_id = desk.open()
        await desk.chat(session_id, "hi")
        _, found = await read(desk, session_id)
        head = desk.registry.find(session_id).history.head
        assert head is not None
        assert found["accumulated_token_ids"] == head.token_ids.tolist()
        assert found["tito_session_mismatch"] == []


async def test_a_comparison_is_made_once_for_a_checkpoint(
    open_desk: OpenDesk,
    monkeypatch: Any,  # noqa: ANN401 - a fixture
):
    async with open_desk() as desk:
        session_id = desk.open()
        await desk.chat(session_id, "hi")
        calls: list[object] = []
        whole = desk.prompts.whole

        def noted(*given: Any) -> list[int]:  # noqa: ANN401 - passed on
            calls.append(given)
            return list(whole(*given))

        monkeypatch.setattr(desk.prompts, "whole", noted)
        metadata, first = await read(desk, session_id)
        session = desk.registry.find(session_id)
        second = await metadata.read(session, session.history.nodes)
        assert first == second
        assert len(calls) == 1


async def test_only_a_tree_tells_its_turns(open_desk: OpenDesk):
    async with open_desk() as desk:
        for mode, has_tree in (("linear", False), ("tree", True)):
            _, found = await read(desk, desk.open(mode=mode))
            assert ("tree" in found) == has_tree


async def test_every_turn_of_a_tree_can_be_compared(open_desk: OpenDesk):
    async with open_desk() as desk:
        session_id = desk.open(mode="tree")
        for text in ("one", "two"):
            await desk.chat(session_id, text)
        session = desk.registry.find(session_id)
        metadata = SessionMetadata(desk.prompts)
        for node in session.history.nodes:
            assert await metadata.mismatch_of(session, node) == {"tito_session_mismatch": []}
            assert session.known_mismatch(node.checkpoint) == {"tito_session_mismatch": []}
