"""The prompt's ids are cut out of a reply only where nothing of its meaning or bytes changes."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.engine_replies import prompt_echo
from sessions.core.engine_replies.prompt_echo import PROMPT_IDS, SENT_IDS, cut_echo, holders_of
from sessions.core.engine_replies.taken_reply import TakenReply, read_taken
from sessions.core.texts.json_text import parse_engine_json
from sessions.core.texts.shared_text import IdsText
from sessions.replay.taken import TakenText

IDS = list(range(100_000, 103_000))
PROMPT = IdsText().followed(array("I", IDS), 0)
ECHO = json.dumps(IDS, separators=(",", ":"))


async def read(body: bytes, prompt: IdsText = PROMPT) -> TakenReply:
    reply = await read_taken(TakenText(text=body, blobs=()), prompt)
    assert b"".join(reply.raw.parts) == body  # type: ignore[arg-type]
    return reply


def told(value: Any, ids: list[int]) -> Any:  # noqa: ANN401 - JSON
    """What a parsed reply says, its ids written out."""
    for holder in holders_of(value):
        if holder.get(PROMPT_IDS) is SENT_IDS:
            holder[PROMPT_IDS] = ids
    return value


async def test_ids_as_they_were_sent_are_cut_out_and_shared():
    body = f'{{"choices":[{{"prompt_token_ids":{ECHO},"x":1}}],"prompt_token_ids":{ECHO}}}'
    reply = await read(body.encode())
    assert reply.value == {
        "choices": [{PROMPT_IDS: SENT_IDS, "x": 1}],
        PROMPT_IDS: SENT_IDS,
    }
    assert reply.strict is reply.raw
    held = {id(part) for part in PROMPT.pieces}
    own = [part for part in reply.raw.parts if isinstance(part, bytes) and id(part) not in held]
    assert len(reply.raw.parts) - len(own) == 2
    assert sum(map(len, own)) < 100


@pytest.mark.parametrize(
    "text",
    [
        f'{{"prompt_token_ids": {ECHO}}}',
        f'{{"prompt_token_ids":{json.dumps(IDS)}}}',
        f'{{"prompt_token_ids":{ECHO[:-1]},1]}}',
        f'{{"prompt_token_ids":{json.dumps([*IDS[:-1], 0])}}}',
        '{"prompt_token_ids":null}',
        '{"prompt_token_ids":"x"}',
        f'{{"meta_info":{{"prompt_token_ids":{ECHO}}}}}',
        f'{{"choices":{{"prompt_token_ids":{ECHO}}}}}',
        f'{{"x\\"prompt_token_ids":{ECHO}}}',
        f'{{"prompt_token_ids":{ECHO},"prompt_token_ids":[1]}}',
        f'{{"prompt_token_ids":[1],"prompt_token_ids":{ECHO}}}',
        f'[{{"prompt_token_ids":{ECHO}}}]',
        f'{{"prompt_token_ids":{ECHO},"p":NaN}}',
        f'{{"prompt_token_ids":{ECHO},"prompt_token_ids":{ECHO},"p":NaN}}',
    ],
)
async def test_whatever_else_stands_there_is_read_as_it_is(text: str):
    whole, is_strict = parse_engine_json(text.encode())
    reply = await read(text.encode())
    assert told(reply.value, IDS) == whole
    assert reply.is_strict == is_strict
    strict = b"".join(reply.strict.parts)  # type: ignore[arg-type]
    assert strict == (text.encode() if is_strict else strict)
    assert json.loads(strict) == whole


@pytest.mark.parametrize("end", ["", "]", "}}"])
async def test_what_is_no_json_is_refused(end: str):
    with pytest.raises(ValueError):  # noqa: PT011 - of either parser
        await read(f'{{"prompt_token_ids":{ECHO}{end}'.encode())


async def test_few_ids_stay_in_the_text():
    ids = array("I", [1, 2, 3])
    reply = await read(b'{"prompt_token_ids":[1,2,3]}', IdsText().followed(ids, 0))
    assert reply.value == {PROMPT_IDS: [1, 2, 3]}
    assert len(reply.raw.parts) == 1


def test_a_text_is_searched_once_however_many_ids_stand_in_it():
    cut = cut_echo(b"[" + b'{"prompt_token_ids":[1]},' * 50_000 + b"0]", PROMPT)
    assert cut.count == 0


def test_each_reply_has_a_mark_of_its_own():
    one, two = cut_echo(b"{}", PROMPT), cut_echo(b"{}", PROMPT)
    assert one.mark != two.mark


VALUES = st.recursive(
    st.sampled_from([0, 1.5, None, "x", "é\ud800", float("nan"), [1, 2], [1, 2, 3], "[1,2,3]"]),
    lambda inner: (
        st.dictionaries(
            st.sampled_from(["choices", PROMPT_IDS, f'"{PROMPT_IDS}":', "x"]), inner, max_size=4
        )
        | st.lists(inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(value=VALUES, is_compact=st.booleans(), repeated=st.booleans())
async def test_a_cut_reply_says_what_the_whole_one_says(
    *, value: object, is_compact: bool, repeated: bool
):
    separators = (",", ":") if is_compact else None
    text = json.dumps(value, separators=separators)
    if repeated and text.startswith("{") and text != "{}":
        text = f'{{"{PROMPT_IDS}":[1,2,3],{text[1:]}'
    whole, is_strict = parse_engine_json(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompt_echo, "PIECE_BYTES", 1)
        reply = await read(text.encode(), IdsText().followed(array("I", [1, 2, 3]), 0))
    assert json.dumps(told(reply.value, [1, 2, 3])) == json.dumps(whole)
    assert reply.is_strict == is_strict
    assert json.dumps(json.loads(b"".join(reply.strict.parts))) == json.dumps(whole)  # type: ignore[arg-type]
