"""A rollout with tools through the OpenAI SDK, and a proof that its tokens are exact.

It creates a session, chats for some turns (plain and streamed in turns), runs the tools that the
model calls, then reads the session's records and checks what a trainer relies on: each prompt
starts with exactly the token ids of the turn before, the session reports no mismatch, and the
records hold what was sent and what came back. Exits 1 if any of that is not so.

    make run                                # a server on the simulated engine
    python examples/rollout.py              # ten turns against http://127.0.0.1:8000

Spec: docs/sessions.md#example
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from openai import OpenAI, OpenAIError
from openai.types.chat import ChatCompletionChunk

from sessions.client.answers import Records, prompt_ids, sampled_ids
from sessions.client.errors import SessionsClientError
from sessions.client.sync_client import SessionClient

Message = dict[str, Any]

SYSTEM: Final = "You are a careful travel clerk. Use the tools; do not guess."
QUESTIONS: Final = (
    "How is the weather in Lisbon?",
    "How far is it from Lisbon to Porto?",
    "And the weather in Porto, please. Then the distance to Braga.",
)
TOOLS: Final[list[dict[str, Any]]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "get_distance",
            "description": "The distance between two cities in km.",
            "parameters": {
                "type": "object",
                "properties": {"start": {"type": "string"}, "goal": {"type": "string"}},
                "required": ["start", "goal"],
            },
        },
    },
]
_COMPARED: Final = ("role", "content", "reasoning_content", "tool_calls", "tool_call_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One call as the client saw it.

    Attributes:
        form: `plain` or `streamed`.
        sent: The messages of the request, copied.
        reply: The assistant message that came back.
        finish_reason: Why the model stopped.
        sampled_count: The server's count of completion tokens.
    """

    form: str
    sent: list[Message]
    reply: Message
    finish_reason: str
    sampled_count: int


def run_tool(name: str, arguments: str) -> str:
    """Run one of the two tools; a call that cannot be run is answered with the reason."""
    try:
        given = json.loads(arguments)
        if name == "get_weather":
            return json.dumps({"city": given["city"], "celsius": 11 + len(given["city"]) % 17})
        if name == "get_distance":
            km = 40 * (1 + len(given["start"] + given["goal"]) % 12)
            return json.dumps({"from": given["start"], "to": given["goal"], "km": km})
    except (ValueError, KeyError, TypeError) as error:
        return json.dumps({"error": f"bad arguments: {error!r}"})
    return json.dumps({"error": f"no tool {name}"})


def next_messages(messages: Sequence[Message], asked_count: int) -> list[Message]:
    """What the client adds after a reply: the results of its tool calls, or a new question."""
    calls = (messages[-1].get("tool_calls") or []) if messages else []
    if calls:
        return [
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "content": run_tool(call["function"]["name"], call["function"]["arguments"]),
            }
            for call in calls
        ]
    return [{"role": "user", "content": QUESTIONS[asked_count % len(QUESTIONS)]}]


def chat(client: OpenAI, model: str, turn_count: int) -> list[Turn]:
    """Hold the conversation: every other turn is streamed."""
    turns: list[Turn] = []
    messages: list[Message] = [{"role": "system", "content": SYSTEM}]
    while len(turns) < turn_count:
        asked_count = sum(message["role"] == "user" for message in messages)
        messages += next_messages(messages, asked_count)
        ask = ask_streamed if len(turns) % 2 else ask_plain
        turn = ask(client, model, list(messages))
        turns.append(turn)
        messages.append(turn.reply)
    return turns


def ask_plain(client: OpenAI, model: str, messages: list[Message]) -> Turn:
    """One call whose reply comes whole."""
    reply: Any = client.chat.completions.create(model=model, messages=messages, tools=TOOLS)  # type: ignore[arg-type]
    return Turn(
        form="plain",
        sent=messages,
        reply=reply.choices[0].message.model_dump(exclude_none=True),
        finish_reason=reply.choices[0].finish_reason,
        sampled_count=reply.usage.completion_tokens,
    )


def ask_streamed(client: OpenAI, model: str, messages: list[Message]) -> Turn:
    """One call whose reply comes in deltas."""
    with client.chat.completions.create(  # type: ignore[call-overload]
        model=model,
        messages=messages,
        tools=TOOLS,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        return turn_of_chunks(messages, stream)


def turn_of_chunks(messages: list[Message], chunks: Iterable[ChatCompletionChunk]) -> Turn:
    """Join the deltas of a streamed reply."""
    texts = {"content": "", "reasoning_content": ""}
    calls: dict[int, Message] = {}
    finish_reason, sampled_count = "", 0
    for chunk in chunks:
        sampled_count = chunk.usage.completion_tokens if chunk.usage else sampled_count
        for choice in chunk.choices:
            delta = choice.delta.model_dump(exclude_none=True)
            for name in texts:
                texts[name] += delta.get(name, "")
            for part in delta.get("tool_calls", []):
                join_call(calls, part)
            finish_reason = choice.finish_reason or finish_reason
    reply: Message = {"role": "assistant"} | {name: text for name, text in texts.items() if text}
    if calls:
        reply["tool_calls"] = [calls[index] for index in sorted(calls)]
    return Turn(
        form="streamed",
        sent=messages,
        reply=reply,
        finish_reason=finish_reason,
        sampled_count=sampled_count,
    )


def join_call(calls: dict[int, Message], part: Mapping[str, Any]) -> None:
    """Add one delta to the tool call of its index."""
    empty = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
    call = calls.setdefault(part["index"], empty)
    call["id"] = part.get("id") or call["id"]
    for name, text in part.get("function", {}).items():
        call["function"][name] += text


def violations_of(turns: Sequence[Turn], found: Records) -> list[str]:
    """Everything that a trainer could not rely on, one line each; empty if all is well."""
    if len(found.records) != len(turns):
        return [f"{len(turns)} turns were held, {len(found.records)} are recorded"]
    wrong = []
    mismatch = found.metadata.get("tito_session_mismatch")
    # A model may spell otherwise than the template; what it sampled is the truth.
    if mismatch is None or any(each["type"] != "assistant_text" for each in mismatch):
        wrong.append(f"tito_session_mismatch is {mismatch!r}")
    before: list[int] = []
    for number, (turn, record) in enumerate(zip(turns, found.records, strict=True), start=1):
        wrong += [f"turn {number}: {fault}" for fault in faults_of(turn, record)]
        prompt = prompt_ids(record)
        # Some families drop a stop token that is also the next message's head.
        kept_count = len(before) - int(found.metadata.get("max_trim_tokens", 0))
        if prompt[: max(0, kept_count)] != before[: max(0, kept_count)]:
            wrong.append(
                f"turn {number}: the prompt does not start with the ids of the turn before"
            )
        before = prompt + sampled_ids(record)
    if found.metadata.get("accumulated_token_ids") != before:
        wrong.append("accumulated_token_ids are not the ids of the last turn")
    return wrong


def faults_of(turn: Turn, record: Mapping[str, Any]) -> list[str]:
    """Where a record differs from what the client sent and received."""
    wrong = []
    if plain(record["request"].get("messages")) != plain(turn.sent):
        wrong.append("the recorded messages are not the sent ones")
    choice = record["response"]["choices"][0]
    if plain([choice["message"]]) != plain([turn.reply]):
        wrong.append("the recorded reply is not the received one")
    if len(sampled_ids(record)) != turn.sampled_count:
        wrong.append(f"{len(sampled_ids(record))} ids recorded, {turn.sampled_count} reported")
    return wrong


def plain(messages: Sequence[Mapping[str, Any]] | None) -> list[Message]:
    """Messages without what carries no meaning: empty values, the index of a tool call.

    A record has the engine's own name of the reasoning, which may be `reasoning`.
    """
    found = []
    for told in messages or []:
        message = {
            **told,
            "reasoning_content": told.get("reasoning_content") or told.get("reasoning"),
        }
        kept = {name: message[name] for name in _COMPARED if message.get(name)}
        if "tool_calls" in kept:
            kept["tool_calls"] = [(call["id"], call["function"]) for call in kept["tool_calls"]]
        found.append(kept)
    return found


def report(session_id: str, turns: Sequence[Turn], found: Records) -> None:
    """Print what happened, a line per turn."""
    print(f"session {session_id}")
    print("turn  form      finish       prompt  sampled  said")
    for number, (turn, record) in enumerate(zip(turns, found.records, strict=False), start=1):
        calls = [call["function"]["name"] for call in turn.reply.get("tool_calls", [])]
        said = " + ".join(calls) or turn.reply.get("content", "").strip()[:40]
        print(
            f"{number:4}  {turn.form:8}  {turn.finish_reason:11}"
            f"  {len(prompt_ids(record)):6}  {len(sampled_ids(record)):7}  {said}"
        )


def run_rollout(url: str, model: str, turn_count: int) -> list[str]:
    """Hold one rollout, print its report, delete its session.

    Args:
        url: The server's address.
        model: Its model, or "" for the first one that it lists.
        turn_count: Calls of the model.

    Returns:
        The violations.

    Raises:
        SessionsClientError: The server is not healthy, refused, or sent what it must not.
        OpenAIError: A chat failed.
    """
    with SessionClient(url) as sessions:
        sessions.check()
        session = sessions.create()
        with OpenAI(base_url=session.base_url, api_key="unused") as client:
            turns = chat(client, model or client.models.list().data[0].id, turn_count)
        found = sessions.records(session.session_id)
        sessions.delete(session.session_id)
    report(session.session_id, turns, found)
    wrong = violations_of(turns, found)
    for line in wrong:
        print(f"VIOLATION {line}")
    token_count = len(found.metadata.get("accumulated_token_ids", []))
    print(f"{len(turns)} turns, {token_count} tokens, {len(wrong)} violations")
    return wrong


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rollout; see the module docstring.

    Returns:
        0 if everything holds, else 1.
    """
    parser = argparse.ArgumentParser(description="A rollout with tools, and its proof.")
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8000", help="of the server")
    parser.add_argument("--turns", type=int, default=10, help="calls of the model")
    parser.add_argument("--model", default="", help="default: the first one the server lists")
    args = parser.parse_args(argv)
    try:
        wrong = run_rollout(args.url, args.model, args.turns)
    except (SessionsClientError, OpenAIError) as error:
        print(error, file=sys.stderr)
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
