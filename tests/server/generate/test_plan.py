"""The form of an answer, under every name that clients know for it."""

from typing import Any

import pytest

from tests.server.harness import CHAT, http_client
from tests.server.scripted.engine import PLAIN_SOURCE, PlainTemplate, ScriptedModel, scripted_model

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NAMED = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}}
LARK = 'start: "a" | "b"'
TOOL = {"type": "function", "function": {"name": "f"}}


async def ask(model: ScriptedModel, path: str = "/v1/chat/completions", **fields: Any) -> Any:
    base = CHAT if path == "/v1/chat/completions" else {"model": "scripted", "prompt": "x"}
    async with http_client(model) as client:
        return await client.post(path, json={**base, **fields})


@pytest.mark.parametrize(
    ("fields", "param", "word"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format", "object"),
        ({"response_format": NAMED}, "response_format.json_schema.schema", "city"),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, "response_format.schema", "city"),
        ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, "response_format.schema", "city"),
        ({"structured_outputs": {"json": SCHEMA}}, "structured_outputs.json", "city"),
        ({"structured_outputs": {"json_object": True}}, "structured_outputs.json_object", "object"),
        ({"structured_outputs": {"regex": "ab+"}}, "structured_outputs.regex", "ab+"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "structured_outputs.choice", "yes"),
        ({"structured_outputs": {"grammar": LARK}}, "structured_outputs.grammar", '"b"'),
        ({"guided_json": SCHEMA}, "guided_json", "city"),
        ({"guided_json": '{"type": "object", "properties": {"city": {}}}'}, "guided_json", "city"),
        ({"guided_regex": "ab+"}, "guided_regex", "ab+"),
        ({"guided_choice": ["yes", "no"]}, "guided_choice", "no"),
        ({"guided_grammar": LARK}, "guided_grammar", '"b"'),
        ({"json_schema": SCHEMA}, "json_schema", "city"),
        ({"regex": "ab+"}, "regex", "ab+"),
        ({"grammar": LARK}, "grammar", '"b"'),
        ({"ebnf": LARK}, "ebnf", '"b"'),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_every_spelling_becomes_a_grammar(path: str, fields: dict[str, Any], param: str, word: str) -> None:
    model = scripted_model("x")
    answer = await ask(model, path, **fields)
    assert answer.status_code == 200, answer.text
    [(grammar, named)] = model.constraints.grammars
    assert named == param and word in grammar.replace("\\", "")
    assert model.service.requests[0].constraint is not None


async def test_text_is_no_constraint() -> None:
    model = scripted_model("x")
    assert (await ask(model, response_format={"type": "text"})).status_code == 200
    assert model.constraints.grammars == [] and model.service.requests[0].constraint is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs.choice"),
        ({"guided_json": SCHEMA, "json_schema": SCHEMA}, "json_schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}},
            "response_format.json_schema.name",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a" * 65, "schema": {}}}},
            "response_format.json_schema.name",
        ),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": "json"}, "response_format"),
        ({"guided_json": "{"}, "guided_json"),
        ({"grammar": 'root ::= "a" | "b"'}, "grammar"),
        ({"guided_choice": []}, "guided_choice"),
    ],
)
async def test_what_contradicts_itself_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    model = scripted_model("x")
    answer = await ask(model, **fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
    assert model.service.requests == []


async def test_a_form_goes_with_tools_that_may_not_be_called() -> None:
    model = scripted_model("x")
    answer = await ask(model, response_format=NAMED, tools=[TOOL], tool_choice="none")
    assert answer.status_code == 200 and [param for _, param in model.constraints.grammars] == [
        "response_format.json_schema.schema"
    ]


async def test_with_tools_the_answer_is_a_call_or_a_text_of_the_form() -> None:
    model = scripted_model("x")
    answer = await ask(model, response_format=NAMED, tools=[TOOL])
    assert answer.status_code == 200
    [(grammar, param)] = model.constraints.grammars
    assert param == "response_format.json_schema.schema"
    assert '"city"' in grammar and '\\"name\\": \\"f\\"' in grammar


async def test_thinking_is_free_before_the_form() -> None:
    grammars = []
    for template in (PlainTemplate(opening="<think>\n"), PlainTemplate(source=PLAIN_SOURCE)):
        model = ScriptedModel(template=template)
        assert (await ask(model, guided_choice=["yes"])).status_code == 200
        grammars.append(model.constraints.grammars[0][0])
    assert len(grammars[0]) > len(grammars[1])
