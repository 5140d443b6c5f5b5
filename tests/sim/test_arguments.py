"""Arguments: they satisfy the schema they were made from, whatever it is."""

import json
import random
from typing import Any

import jsonschema
import pytest

from sessions.sim.arguments import arguments_for

SCHEMAS = [
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"type": "string", "enum": ["c", "f"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 5},
            "limit": {"type": "number", "minimum": 0.5, "maximum": 2.5},
            "exact": {"type": "boolean"},
        },
        "required": ["city", "days", "limit"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 3},
            "maybe": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
            "either": {"type": ["null", "string"]},
            "nothing": {"type": "null"},
            "fixed": {"const": 7},
            "preset": {"type": "string", "default": "x"},
            "day": {"type": "string", "format": "date"},
        },
        "$defs": {
            "item": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
                "required": ["name", "size"],
            }
        },
    },
    {"type": "object", "properties": {}},
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_arguments_satisfy_their_schema(schema: dict[str, object]):
    for seed in range(40):
        made = arguments_for(schema, "3 days in Paris, please", random.Random(seed))
        jsonschema.validate(made, schema)


def test_words_and_numbers_of_the_user_are_used():
    made = arguments_for(SCHEMAS[0], "How will it be in Paris for 4 days?", random.Random(1))
    assert made["city"] == "Paris"
    assert made["days"] == 4


def test_numbers_outside_of_the_range_are_not_used():
    made = arguments_for(SCHEMAS[0], "the next 400 days", random.Random(1))
    assert 1 <= made["days"] <= 5


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}]}}},
    ],
)
def test_a_reference_to_itself_ends(schema: dict[str, object]):
    assert list(arguments_for(schema, "", random.Random(1))) == ["a"]


def test_a_schema_that_refers_to_itself_ends():
    schema: dict[str, Any] = {
        "properties": {"child": {"$ref": "#"}, "list": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["child", "list"],
    }
    json.dumps(arguments_for(schema, "", random.Random(1)))
    schema = {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "array"}}}
    schema["$defs"]["a"]["items"] = {"$ref": "#/$defs/a"}
    assert list(arguments_for(schema, "", random.Random(1))) == ["a"]


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        "x",
        {},
        {"properties": 3},
        {"properties": {"a": None, "b": {"type": "odd"}, "c": {"$ref": "#/none/here"}}},
        {"properties": {"a": {"enum": []}, "b": {"anyOf": []}, "c": {"type": []}}},
        {"properties": {"a": {"$ref": "http://elsewhere"}}, "required": "a"},
        {"properties": {"a": {"type": "integer", "minimum": 9, "maximum": 1}}},
    ],
)
def test_a_schema_that_is_none_still_gives_an_object(schema: object):
    assert isinstance(arguments_for(schema, "", random.Random(1)), dict)


def test_optional_properties_come_only_sometimes():
    sizes = {len(arguments_for(SCHEMAS[0], "", random.Random(seed))) for seed in range(30)}
    assert len(sizes) > 1
    assert min(sizes) == 3
