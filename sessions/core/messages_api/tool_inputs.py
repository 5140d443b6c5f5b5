"""Inputs of tools, which are objects, and arguments of calls, which are text: there and back.

A model samples text. Where it is a JSON object the client gets that object, and what comes back is
a text of ours that says the same (`Reworded`). Where it is none, or has a number that no double
holds, the client gets an object of one member that holds the text, and what comes back is that
text.

Must not know messages.

Spec: docs/sessions.md#anthropic-clients
"""

from __future__ import annotations

import json
from typing import Final

from sessions.core.matchers.arguments import Reworded, doubled_of
from sessions.core.texts.json_text import Json, JsonObject, render_json

UNPARSED: Final = "unparsed_arguments"


def input_of(arguments: Json) -> JsonObject:
    """The input that a client gets for the arguments of a call.

    Args:
        arguments: As sampled: a text, or whatever the engine made of it.

    Returns:
        The object that they say, or one of the single member `UNPARSED`.
    """
    if doubled_of(arguments) is not None:
        value = _parsed(arguments)
        if isinstance(value, dict) and [*value] != [UNPARSED]:
            return value
    text = arguments if isinstance(arguments, str) else render_json(arguments).decode()
    return {UNPARSED: text}


def arguments_of(given: JsonObject) -> Reworded:
    """The arguments of a call for the input that a client sent.

    Args:
        given: An object.

    Raises:
        RecursionError: It is nested too deeply.
    """
    text = given.get(UNPARSED)
    if isinstance(text, str) and input_of(text) == given:
        return Reworded(text)
    return Reworded(render_json(given).decode())


def _parsed(arguments: Json) -> Json:
    if arguments is None or arguments == "":
        return {}
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return None
