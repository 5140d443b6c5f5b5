import asyncio
import json
from array import array
from typing import Any

import pytest

from sessions.core.dialects.choice import AUTO, DIALECTS, DialectChoice
from sessions.core.http_exchange.headers import EngineHeaders
from sessions.engine.engine import EngineReply, EngineRequest, OpenSink
from sessions.errors.engine import (
    EngineDialectUnknownError,
    EngineReplyUnusableError,
    EngineTimeoutError,
    EngineUnreachableError,
)
from sessions.settings import ENGINE_DIALECTS

LABELS = EngineHeaders(routing_key=b"x-key")
Page = tuple[int, bytes]


def models(owner: object) -> Page:
    return 200, json.dumps({"object": "list", "data": [{"id": "m", "owned_by": owner}]}).encode()


class Pages:
    """An engine of a few pages; anything else is a 404.

    Attributes:
        asked: The pages that were asked for, in order.
        headers: Of the last request.
        gate: Requests wait here.
    """

    def __init__(self, **pages: Page | Exception) -> None:
        self.pages: dict[str, Page | Exception] = pages
        self.asked: list[str] = []
        self.headers: list[tuple[bytes, bytes]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def exchange(
        self, request: EngineRequest, _open_sink: OpenSink | None = None
    ) -> EngineReply:
        assert (request.method, request.body) == ("GET", b"")
        name = request.target.decode().rpartition("/")[2]
        self.asked.append(name)
        self.headers = list(request.headers)
        await self.gate.wait()
        page = self.pages.get(name, (404, b'{"detail":"Not Found"}'))
        if isinstance(page, Exception):
            raise page
        return EngineReply(status=page[0], headers=[], body=page[1])

    def forget(self, affinity: str) -> None:
        raise AssertionError(affinity)


def choice_for(engine: Pages, **options: Any) -> DialectChoice:  # noqa: ANN401 - keywords
    return DialectChoice(engine, LABELS, **options)


def test_the_settings_know_every_dialect():
    assert {AUTO, *DIALECTS} == set(ENGINE_DIALECTS)


@pytest.mark.parametrize("name", list(DIALECTS))
async def test_a_dialect_that_is_set_is_never_asked_for(name: str):
    engine = Pages()
    assert (await choice_for(engine, name=name).find([])).name == name
    assert engine.asked == []


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        ({"models": models("vllm")}, "vllm"),
        ({"models": models("SGLang")}, "sglang"),
        ({"models": models("acme"), "get_model_info": (200, b'{"model_path":"m"}')}, "sglang"),
        ({"models": models(None), "version": (200, b'{"version":"0.30.0"}')}, "vllm"),
        ({"models": (401, b"{}"), "version": (200, b'{"version":"0.30.0"}')}, "vllm"),
        ({"models": (200, b"no JSON"), "get_model_info": (200, b'{"model_path":"m"}')}, "sglang"),
        ({"models": (200, b"[]"), "version": (200, b'{"version":"1"}')}, "vllm"),
        ({"models": (200, b'{"data":[]}'), "version": (200, b'{"version":"1"}')}, "vllm"),
        ({"models": (200, b'{"data":[7]}'), "version": (200, b'{"version":"1"}')}, "vllm"),
    ],
)
async def test_an_engine_is_known_by_what_it_says_of_itself(pages: dict[str, Page], expected: str):
    choice = choice_for(Pages(**pages))
    assert choice.found is None
    assert (await choice.find([])).name == expected
    assert choice.found is not None


@pytest.mark.parametrize(
    "pages",
    [
        {},
        {"models": models("acme")},
        {"models": (503, b""), "version": (200, b'{"version":1}')},
        {"models": models("auto"), "get_model_info": (404, b'{"model_path":"m"}')},
    ],
)
async def test_an_engine_that_does_not_tell_is_refused_and_asked_again(pages: dict[str, Page]):
    engine = Pages(**pages)
    choice = choice_for(engine)
    with pytest.raises(EngineDialectUnknownError) as caught:
        await choice.find([])
    assert (caught.value.status, caught.value.should_retry) == (502, False)
    assert "SESSIONS_ENGINE_DIALECT" in caught.value.message
    assert "/version" in caught.value.message
    engine.pages["models"] = models("vllm")
    assert (await choice.find([])).name == "vllm"


async def test_the_engine_is_asked_once_however_many_turns_wait():
    engine = Pages(models=models("vllm"))
    engine.gate.clear()
    choice = choice_for(engine)
    waiting = [asyncio.create_task(choice.find([])) for _ in range(5)]
    while not engine.asked:  # noqa: ASYNC110 - the fake answers at once
        await asyncio.sleep(0)
    engine.gate.set()
    found = await asyncio.gather(*waiting)
    assert len({id(dialect) for dialect in found}) == 1
    await choice.find([])
    assert engine.asked == ["models"]


async def test_a_turn_that_is_cancelled_while_it_asks_leaves_the_next_one_to_ask():
    engine = Pages(models=models("vllm"))
    engine.gate.clear()
    choice = choice_for(engine)
    first, second = (asyncio.create_task(choice.find([])) for _ in range(2))
    while not engine.asked:  # noqa: ASYNC110 - the fake answers at once
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    engine.gate.set()
    assert (await second).name == "vllm"
    assert engine.asked == ["models", "models"]


async def test_turns_that_wait_for_an_answer_share_its_failure():
    engine = Pages(models=EngineUnreachableError("gone"))
    engine.gate.clear()
    choice = choice_for(engine)
    waiting = [asyncio.create_task(choice.find([])) for _ in range(5)]
    while not engine.asked:  # noqa: ASYNC110 - the fake answers at once
        await asyncio.sleep(0)
    engine.gate.set()
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(error) for error in errors} == {EngineUnreachableError}
    assert engine.asked == ["models"]
    engine.pages["models"] = models("vllm")
    assert (await choice.find([])).name == "vllm"


async def test_a_silent_engine_is_a_timeout_and_not_a_wait_for_ever():
    engine = Pages()
    engine.gate.clear()
    with pytest.raises(EngineTimeoutError, match="what it is"):
        await choice_for(engine, timeout_s=0.01).find([])


async def test_an_engine_that_is_not_there_is_told_as_that():
    choice = choice_for(Pages(models=EngineUnreachableError("gone")))
    with pytest.raises(EngineUnreachableError):
        await choice.find([])


async def test_the_credentials_of_the_client_are_those_of_the_question():
    engine = Pages(models=models("vllm"))
    headers = [(b"authorization", b"Bearer s"), (b"content-type", b"x"), (b"cookie", b"c=1")]
    await choice_for(engine).find(headers)
    assert (b"authorization", b"Bearer s") in engine.headers
    assert not {b"content-type", b"cookie", b"x-key"} & {name for name, _ in engine.headers}


async def test_a_reply_that_cannot_be_used_has_the_engine_asked_again():
    engine = Pages(models=models("vllm"))
    choice = choice_for(engine)
    dialect = await choice.find([])
    engine.pages["models"] = models("sglang")
    with pytest.raises(EngineReplyUnusableError):
        choice.read(dialect, {}, b"{}", array("I"))
    assert choice.found is None
    assert (await choice.find([])).name == "sglang"


async def test_a_dialect_that_is_set_is_kept_whatever_a_reply_says():
    choice = choice_for(Pages(), name="vllm")
    dialect = await choice.find([])
    with pytest.raises(EngineReplyUnusableError):
        choice.read(dialect, {}, b"{}", array("I"))
    assert await choice.find([]) is dialect
