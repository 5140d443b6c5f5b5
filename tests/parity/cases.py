"""The HTTP cases that a lone shard and a group must answer alike, each a short script.

A case drives a `Transcript`; what it returns is ignored, what it noted is compared.

Spec: docs/architecture.md#tests
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

from tests.support.raw import request_bytes
from tests.support.transcript import Transcript, json_of

Case = Callable[[Transcript], None]
JSON: Final = (("content-type", "application/json"),)
TOOLS: Final = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Look a word up",
            "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
        },
    }
]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def chat(messages: list[dict[str, Any]], **more: object) -> dict[str, Any]:
    """A chat body whose sample is the same on every server."""
    return {"model": "sim", "messages": messages, "seed": 5, **more}


def chat_path(session_id: str) -> str:
    return f"/sessions/{session_id}/v1/chat/completions"


def say(script: Transcript, session_id: str, messages: list[dict[str, Any]], text: str) -> None:
    """One plain turn; the reply is appended to the messages."""
    body = chat(messages, sim={"content": text, "reasoning": "hm"})
    reply = json_of(script.ask("POST", chat_path(session_id), body, headers=JSON))
    messages.append(reply["choices"][0]["message"])


def life_of_a_session(script: Transcript) -> None:
    session_id = script.create()
    messages = [user("one")]
    script.ask("GET", f"/sessions/{session_id}")
    say(script, session_id, messages, "first")
    messages.append(user("two"))
    say(script, session_id, messages, "second")
    script.ask("GET", f"/sessions/{session_id}")
    script.ask("HEAD", f"/sessions/{session_id}", ragged=True)
    script.ask("DELETE", f"/sessions/{session_id}")
    script.ask("DELETE", f"/sessions/{session_id}")
    script.ask("GET", f"/sessions/{session_id}")
    script.ask("POST", chat_path(session_id), chat(messages))


def tool_calls(script: Transcript) -> None:
    session_id = script.create()
    calls = {"tool_calls": [{"name": "look_up", "arguments": {"word": "ø"}}]}
    messages = [user("what is ø?")]
    body = chat(messages, tools=TOOLS, sim=calls)
    message = json_of(script.ask("POST", chat_path(session_id), body))["choices"][0]["message"]
    call_id = message["tool_calls"][0]["id"]
    result = {"role": "tool", "tool_call_id": call_id, "content": "a letter"}
    messages += [message, result]
    script.ask("POST", chat_path(session_id), chat(messages, tools=TOOLS, sim={"content": "so"}))
    script.ask("GET", f"/sessions/{session_id}")


def samples(script: Transcript) -> None:
    session_id = script.create()
    path = f"/sessions/{session_id}/samples"
    script.ask("POST", path)
    messages = [user("one")]
    for text in ("first", "second", "third"):
        body = chat(messages, sim={"content": text}, return_routed_experts=True)
        reply = json_of(script.ask("POST", chat_path(session_id), body, headers=JSON))
        messages += [reply["choices"][0]["message"], user("more")]
    for limit in (None, 1, 25, 30, 100_000):
        script.ask("POST", path, {"max_seq_len": limit})
    wrong_bodies: tuple[object, ...] = ({"max_seq_len": 0}, {"max_seq_len": "1"}, {"limit": 1}, [])
    for wrong in wrong_bodies:
        script.ask("POST", path, wrong)
    script.ask("POST", path, raw_body=b"{")
    script.ask("GET", path)
    script.ask("POST", "/sessions/nope/samples")
    script.ask("DELETE", f"/sessions/{session_id}")
    script.ask("POST", path)


def reads_in_parts(script: Transcript) -> None:
    session_id = script.create()
    messages = [user("one")]
    for text in ("first", "second", "third"):
        say(script, session_id, messages, text)
        messages.append(user("more"))
    for query in (
        "turns=1",
        "turns=-1&replay=0",
        "turns=1-",
        "turns=9",
        "fields=metadata",
        "raw=1",
    ):
        script.ask("GET", f"/sessions/{session_id}?{query}")
    for query in ("turns=x", "fields=", "fields=nothing", "replay=2", "raw=yes", "raw=1&raw=1"):
        script.ask("GET", f"/sessions/{session_id}?{query}")
    # Of these members the text has one length on every server.
    target = f"/sessions/{session_id}?fields=method,path,status_code"
    etag = script.ask("GET", target).header("etag") or ""
    script.ask("HEAD", target, headers=(("range", "bytes=1-2"),))
    for text in ("0-9", "5-", "-7", "2-1", "1-2,4-5", "100000-", "-0", "x"):
        script.ask("GET", target, headers=(("range", f"bytes={text}"),))
    part = ("range", "bytes=3-8")
    for condition in (("if-range", etag), ("if-range", '"x"'), ("if-none-match", etag)):
        script.ask("GET", target, headers=(part, condition))
    script.ask("GET", target, headers=(("if-match", '"x"'),))
    script.ask("GET", target, headers=(("if-match", etag),))


def streams(script: Transcript) -> None:
    session_id = script.create()
    body = chat([user("hi")], stream=True, sim={"content": "ünï\u2028c", "reasoning": "r"})
    script.ask("POST", chat_path(session_id), body)
    other = script.create()
    body = chat([user("hi")], stream=True, stream_options={"include_usage": True}, tools=TOOLS)
    script.ask("POST", chat_path(other), body)
    script.ask("GET", f"/sessions/{other}")


def stream_errors(script: Transcript) -> None:
    session_id = script.create()
    fault = {"fault": {"kind": "status", "status": 429}}
    script.ask("POST", chat_path(session_id), chat([user("hi")], stream=True, sim=fault))
    script.ask("POST", chat_path(session_id), chat([], stream=True))


def roll_back_and_refusals(script: Transcript) -> None:
    session_id = script.create()
    messages = [user("one")]
    say(script, session_id, messages, "a")
    say(script, session_id, [user("one")], "b")  # back by one turn
    script.ask("GET", f"/sessions/{session_id}")
    script.ask("POST", chat_path(session_id), chat([user("something else")]))
    edited = [user("one"), {"role": "assistant", "content": "never said"}, user("two")]
    script.ask("POST", chat_path(session_id), chat(edited))
    script.ask("GET", f"/sessions/{session_id}")


def bad_bodies(script: Transcript) -> None:
    session_id = script.create()
    path = chat_path(session_id)
    bodies = [
        b"",
        b"[]",
        b'"x"',
        b"null",
        b"{",
        b"\xff\xfe{}",
        b'{"messages":[]}',
        b"\xef\xbb\xbf{}",
    ]
    for raw in bodies:
        script.ask("POST", path, raw_body=raw, headers=JSON)
    for messages in ([{"role": "user"}], [{"content": "x"}], ["x"], {"role": "user"}, None):
        script.ask("POST", path, {"model": "sim", "seed": 1, "messages": messages})
    image = [{"type": "image_url", "image_url": {"url": "data:,"}}]
    script.ask("POST", path, chat([{"role": "user", "content": image}]))
    script.ask("POST", path, chat([user("x")], chat_template_kwargs=3))
    script.ask("GET", f"/sessions/{session_id}")


def engine_faults(script: Transcript) -> None:
    session_id = script.create()
    statuses = [400, 404, 413, 422, 429, 500, 503]
    faults: list[dict[str, Any]] = [{"kind": "status", "status": status} for status in statuses]
    faults += [{"kind": kind} for kind in ("no_choices", "no_meta_info", "nan_logprobs")]
    for fault in faults:
        script.ask("POST", chat_path(session_id), chat([user("hi")], sim={"fault": fault}))
    script.ask("GET", f"/sessions/{session_id}")


def session_keys(script: Transcript) -> None:
    session_id = script.create()
    key = script.key_of(session_id)
    body = chat([user("hi")], sim={"content": "k"})
    for headers in (
        (("authorization", f"Bearer {key}"),),
        (("x-api-key", key),),
        (("authorization", f"Bearer {session_id}.{'0' * 32}"),),
        (("authorization", "Bearer sk-nothing"),),
        (("x-api-key", key), ("x-api-key", key)),
        (("x-api-key", "sk-nothing"), ("x-api-key", key)),
        (("authorization", f"Bearer {key}"), ("authorization", "Bearer sk-nothing")),
        (),
    ):
        script.ask("POST", "/v1/chat/completions", body, headers=headers)
    script.ask("GET", f"/sessions/{session_id}")


def unknown_sessions(script: Transcript) -> None:
    for session_id in ("0" * 32, "~.-_", "a%7Eb", "x" * 128):
        script.ask("GET", f"/sessions/{session_id}")
        script.ask("DELETE", f"/sessions/{session_id}")
        script.ask("POST", chat_path(session_id), chat([user("hi")]))
        script.ask("POST", f"/sessions/{session_id}/anything", {"x": 1})


def retries(script: Transcript) -> None:
    session_id = script.create()
    again, keyed = (("x-stainless-retry-count", "1"),), (("idempotency-key", "one"),)
    body = chat([user("hi")], sim={"content": "first"})
    streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
    for sent in (body, streamed):
        first = script.ask("POST", chat_path(session_id), sent)
        second = script.ask("POST", chat_path(session_id), sent, headers=again)
        assert first.body == second.body
    for _ in range(2):
        script.ask("POST", chat_path(session_id), body, headers=keyed)
    script.ask("POST", chat_path(session_id), streamed, headers=keyed)
    script.ask("GET", f"/sessions/{session_id}")


def options(script: Transcript) -> None:
    for raw in (b"{", b"[]", b'{"mode":"forest"}', b'{"x":1}', b'{"sampling":{"heat":1}}'):
        script.ask("POST", "/sessions", raw_body=raw)
    session_id = script.create(
        sampling={"max_tokens": 5}, max_turns=1, max_session_tokens=10_000, mode="linear"
    )
    body = chat([user("hi")], max_tokens=500, sim={"content": "one two three four five six"})
    reply = json_of(script.ask("POST", chat_path(session_id), body))["choices"][0]["message"]
    script.ask("POST", chat_path(session_id), chat([user("hi"), reply, user("more")]))
    script.ask("POST", chat_path(session_id), {**body, "input_ids": [1]})
    script.ask("GET", f"/sessions/{session_id}")
    small = script.create(max_session_tokens=1)
    script.ask("POST", chat_path(small), body)


def trees(script: Transcript) -> None:
    session_id = script.create(mode="tree")
    path = f"/sessions/{session_id}"
    main, side = [user("one")], [user("a title, please")]
    say(script, session_id, main, "first")
    say(script, session_id, side, "a title")
    for question, text in (("two", "second"), ("two, again", "another")):
        branch = [*main, user(question)]
        say(script, session_id, branch, text)
    script.ask("POST", chat_path(session_id), chat(main, max_tokens=1, sim={"content": "a b c"}))
    script.ask("GET", path)
    for body in (None, {"max_seq_len": 30}, {"metadata": {"reward": 0.5, "task": "t"}}):
        script.ask("POST", f"{path}/samples", body)
    script.ask("DELETE", path)


def bad_session_ids(script: Transcript) -> None:
    for session_id in ("x" * 129, "a%20b", "%00", "a%2Fb", "%", "ä".encode().hex() + "%C3%A4"):
        script.ask("GET", f"/sessions/{session_id}")
        script.ask("POST", chat_path(session_id), chat([user("hi")]))


def catch_all(script: Transcript) -> None:
    session_id = script.create()
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        script.ask(method, f"/sessions/{session_id}/some/path%20x?q=1&q=2", raw_body=b"12")
    script.ask("GET", f"/sessions/{session_id}/v1/models")
    script.ask("HEAD", f"/sessions/{session_id}/v1/models")


def plain_routes(script: Transcript) -> None:
    for target in ("/", "/v1/models", "/livez", "/readyz", "/nope", "/sessions", "/docs", "/v1"):
        for method in ("GET", "HEAD", "OPTIONS", "POST", "DELETE"):
            if (method, target) != ("POST", "/sessions"):
                script.ask(method, target)


def odd_heads(script: Transcript) -> None:
    for data in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        b"get / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://a/livez HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /livez HTTP/1.0\r\n\r\n",
        b"\r\n\r\nGET /livez HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n folded: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x00\xa5\x01\x00\x00",
        request_bytes("GET", "/", [("X", "y" * 70_000)]),
        request_bytes("GET", "/", [(f"X-{n}", "z") for n in range(500)]),
        request_bytes("GET", "/", [("Cookie", "c" * 8000)]),
    ):
        script.send(data)


def odd_bodies(script: Transcript) -> None:
    session_id = script.create()
    path = chat_path(session_id)
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    script.send(head + b"zz\r\n")
    script.send(head + b"2\r\n{}\r\n0\r\n\r\n")
    script.send(head + b"2;ext=1\r\n{}\r\n0\r\nTrailer: x\r\n\r\n")
    script.ask("POST", path, chat([user("hi")]), headers=(("expect", "100-continue"),))
    announced = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999999\r\n\r\n"
    script.send(announced.encode())


def large_bodies(script: Transcript) -> None:
    session_id = script.create()
    text = base64.b64encode(b"\0" * 300_000).decode()
    script.ask("POST", f"/sessions/{session_id}/echo", {"text": text})


CASES: Final[tuple[Case, ...]] = (
    life_of_a_session,
    tool_calls,
    samples,
    reads_in_parts,
    streams,
    stream_errors,
    roll_back_and_refusals,
    retries,
    options,
    trees,
    bad_bodies,
    engine_faults,
    session_keys,
    unknown_sessions,
    bad_session_ids,
    catch_all,
    plain_routes,
    odd_heads,
    odd_bodies,
    large_bodies,
)
