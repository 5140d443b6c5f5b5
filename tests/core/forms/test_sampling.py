import pytest

from sessions.core.forms.sampling import parse_sampling, with_sampling
from sessions.core.texts.json_text import Json
from sessions.errors.client_visible import RequestError


def test_every_parameter_is_taken_as_it_came():
    sampling = {
        "temperature": 0,
        "top_p": 0.5,
        "top_k": -1,
        "min_p": 1,
        "max_tokens": 1,
        "min_tokens": 0,
        "frequency_penalty": -2,
        "presence_penalty": 2,
        "repetition_penalty": 1.05,
        "seed": 0,
        "stop": ["a", "b"],
        "stop_token_ids": [1, 2],
        "ignore_eos": True,
    }
    assert parse_sampling(sampling) == sampling
    assert parse_sampling({"stop": "a"}) == {"stop": "a"}


def test_null_fixes_nothing():
    assert parse_sampling(None) == {}
    assert parse_sampling({"temperature": None}) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", True),
        ("temperature", "1"),
        ("temperature", -0.1),
        ("temperature", float("inf")),
        ("temperature", float("nan")),
        ("temperature", 10**400),
        ("top_p", 1.1),
        ("top_k", 1.0),
        ("top_k", -2),
        ("max_tokens", 0),
        ("seed", True),
        ("stop", ""),
        ("stop", []),
        ("stop", [1]),
        ("stop", ["x"] * 65),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", [True]),
        ("stop_token_ids", []),
        ("ignore_eos", 1),
        ("max_new_tokens", 5),
        ("n", 1),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, value: Json):
    with pytest.raises(RequestError) as caught:
        parse_sampling({name: value})
    assert caught.value.param == f"sampling.{name}"


def test_what_is_no_object_is_refused():
    with pytest.raises(RequestError) as caught:
        parse_sampling([1])
    assert caught.value.param == "sampling"


def test_the_sessions_value_takes_the_place_of_the_clients():
    body = {"messages": [], "temperature": 2, "x": 1}
    fixed = with_sampling(body, {"temperature": 0.5, "top_p": 1})
    assert list(fixed.items()) == [("messages", []), ("temperature", 0.5), ("x", 1), ("top_p", 1)]
    assert body["temperature"] == 2


def test_another_name_of_a_fixed_parameter_does_not_stand_beside_it():
    assert with_sampling({"max_completion_tokens": 9}, {"max_tokens": 5}) == {"max_tokens": 5}
    kept = with_sampling({"max_completion_tokens": 9}, {"top_k": 5})
    assert kept == {"max_completion_tokens": 9, "top_k": 5}


def test_a_body_is_itself_when_nothing_is_fixed():
    body: dict[str, Json] = {"messages": []}
    assert with_sampling(body, {}) is body
