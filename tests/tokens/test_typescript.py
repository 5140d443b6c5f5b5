from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.tokens.typescript import typescript_of


def tool(parameters: object, **more: object) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters, **more}}


def parameters_of(properties: dict[str, Any], *required: str, **more: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **more}


def inside(text: str | None) -> str:
    assert text is not None
    return text.removeprefix("# Tools\n\n## functions\nnamespace functions {\n").removesuffix("}\n")


def test_a_function_is_a_type_in_a_namespace_with_its_description_before_it():
    tools = [tool({}, description="Does it.\n\nWell."), tool(None)]
    assert typescript_of(tools) == (
        "# Tools\n\n## functions\nnamespace functions {\n"
        "// Does it.\n\n// Well.\ntype f = (_: {}) => any;\n"
        "type f = (_: {}) => any;\n}\n"
    )


def test_parameters_stand_by_name_the_required_ones_first():
    schema = parameters_of(
        {
            "d": {"type": "string"},
            "b": {"type": "integer"},
            "c": {"type": "boolean"},
            "a": {"type": "number"},
        },
        "d",
        "b",
    )
    assert inside(typescript_of([tool(schema)])) == (
        "type f = (_: {\n  b: number,\n  d: string,\n  a?: number,\n  c?: boolean\n}) => any;\n"
    )


def test_what_a_schema_says_besides_the_type_is_told_in_comments():
    schema = parameters_of(
        {
            "a": {"type": "string", "description": "One\nTwo", "pattern": "x", "maxLength": 3},
            "b": {"type": "integer", "minimum": 1, "default": 2, "maxLength": 9},
            "c": {"type": "boolean", "default": False},
            "d": {"type": "string", "default": "é"},
            "e": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "f": {"type": "string", "default": None},
        },
        "a",
    )
    assert inside(typescript_of([tool(schema)])) == (
        "type f = (_: {\n"
        "  // One\n  // Two\n  // maxLength: 3, pattern: x\n  a: string,\n"
        "  // minimum: 1\n  // Default: 2\n  b?: number,\n"
        "  // Default: False\n  c?: boolean,\n"
        '  // Default: "é"\n  d?: string,\n'
        "  // minItems: 1\n  e?: Array<string>,\n"
        "  f?: string\n}) => any;\n"
    )


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "null"}, "null"),
        ({"enum": ["a", 1, None, True], "type": "string"}, '"a" | 1 | None | True'),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null"),
        ({"type": ["integer", "null", "array", "object"]}, "number | null | Array<any> | {}"),
        ({"type": "array"}, "Array<any>"),
        ({"type": "array", "items": {"enum": ["x"]}}, 'Array<"x">'),
        ({"type": "array", "items": True}, "Array<any>"),
        ({}, "any"),
        (True, "any"),
        (False, "null"),
        ({"type": "object"}, "{}"),
        (
            {"type": "array", "items": {"type": "string", "description": "D", "default": 1}},
            "Array<\n    // D\n    string\n  >",
        ),
        (parameters_of({"y": {"type": "string"}}), "{\n    y?: string\n  }"),
        ({"type": "object", "additionalProperties": True}, "{\n    [k: string]: any\n  }"),
        ({"type": "object", "additionalProperties": False}, "{\n    [k: string]: never\n  }"),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            "{\n    [k: string]: number\n  }",
        ),
    ],
)
def test_each_kind_of_schema_has_its_type(schema: object, text: str):
    told = inside(typescript_of([tool(parameters_of({"x": schema}, "x"))]))
    assert told == f"type f = (_: {{\n  x: {text}\n}}) => any;\n"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "type": "string"},
        {"type": "object", "$defs": {}},
        {"oneOf": [{}]},
        {"anyOf": 1},
        {"enum": 1},
        {"enum": "ab"},
        {"type": 1},
        {"type": ["x"]},
        1,
        {"type": "object", "properties": 1},
        {"type": "object", "required": 1},
        {"type": "object", "required": "ab"},
    ],
)
def test_a_schema_without_a_form_leaves_the_tools_without_one(schema: object):
    assert typescript_of([tool({}), tool(parameters_of({"x": schema}))]) is None


def test_definitions_leave_the_tools_without_a_form():
    assert typescript_of([tool({"type": "object", "$defs": {"a": {}}})]) is None


def test_a_schema_that_is_nested_too_deeply_has_no_form():
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(2000):
        deep = {"type": "array", "items": deep}
    assert typescript_of([tool(parameters_of({"x": deep}))]) is None


@pytest.mark.parametrize("tools", [None, [], "x", 1, [1], [{"type": "other"}], [tool(1)]])
def test_what_holds_no_functions_has_no_form(tools: object):
    assert typescript_of(tools) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "required", "items", "anyOf", "enum", "default", "x"]
            ),
            inner | st.sampled_from(["object", "array", "string"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(parameters=JSON)
def test_any_tools_have_a_form_or_none(parameters: object):
    assert isinstance(typescript_of([tool(parameters)]), str | None)
