"""Which tools may be called: the choice is a grammar, and what makes no sense is refused."""

from typing import Any

import pytest

from tests.server.harness import CHAT, http_client
from tests.server.scripted.engine import Mark, PlainTemplate, ScriptedModel, Step, scripted_model
from tests.server.scripted.joined import events

FUNCTIONS: list[dict[str, Any]] = [
    {"name": "one", "description": "first"},
    {"name": "two", "parameters": {"type": "object"}},
]
TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]
CALL: list[Step] = [Mark("<tool_call>"), '\n{"name": "one", "arguments": {', "}}\n", Mark("</tool_call>")]


async def ask(model: ScriptedModel, **fields: Any) -> Any:
    async with http_client(model) as client:
        return await client.post("/v1/chat/completions", json={**CHAT, **fields})


async def grammar(**fields: Any) -> str:
    model = scripted_model("x")
    answer = await ask(model, **fields)
    assert answer.status_code == 200, answer.text
    assert model.service.requests[0].constraint is not None
    return model.constraints.grammars[0][0]


def name(function: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": function}}


async def test_each_choice_is_its_own_grammar() -> None:
    choices = ["none", "auto", "required", name("one"), name("two")]
    grammars = [await grammar(tools=TOOLS, tool_choice=choice) for choice in choices]
    assert len(set(grammars)) == len(choices)
    none, auto, _, one, two = grammars
    assert "one" not in none and "one" in auto
    assert '\\"one\\"' in one and '\\"two\\"' not in one and '\\"two\\"' in two


async def test_allowed_tools_are_a_choice_among_some() -> None:
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [name("one")]}}
    both = await grammar(tools=TOOLS, tool_choice=allowed)
    one = await grammar(tools=TOOLS, tool_choice=allowed, parallel_tool_calls=False)
    assert both != one == await grammar(tools=TOOLS, tool_choice=name("one"))  # a named tool is called once


async def test_a_choice_may_be_written_as_other_providers_write_it() -> None:
    required = await grammar(tools=TOOLS, tool_choice="required")
    assert required == await grammar(tools=TOOLS, tool_choice="any")
    assert required == await grammar(tools=TOOLS, tool_choice={"type": "required"})
    one = await grammar(tools=TOOLS, tool_choice=name("one"))
    assert one == await grammar(tools=TOOLS, tool_choice={"type": "function", "name": "one"})
    flat = [{"type": "function"} | function for function in FUNCTIONS]
    assert await grammar(tools=flat) == await grammar(tools=TOOLS)
    assert await grammar(tools=[{"function": function} for function in FUNCTIONS]) == await grammar(tools=TOOLS)


async def test_without_a_choice_it_is_auto_and_without_tools_there_is_no_grammar() -> None:
    assert await grammar(tools=TOOLS) == await grammar(tools=TOOLS, tool_choice="auto")
    model = scripted_model("x")
    assert (await ask(model, tools=[], tool_choice="auto")).status_code == 200
    assert model.service.requests[0].constraint is None


async def test_one_call_at_a_time_is_another_grammar() -> None:
    assert await grammar(tools=TOOLS) != await grammar(tools=TOOLS, parallel_tool_calls=False)


async def test_tools_reach_the_template_with_their_parameters() -> None:
    model = scripted_model("x")
    await ask(model, tools=TOOLS)
    assert isinstance(model.template, PlainTemplate)
    [tools] = model.template.tools
    assert tools is not None and [tool["function"] for tool in tools] == [
        {"name": "one", "description": "first", "parameters": {"type": "object", "properties": {}}},
        {"name": "two", "description": "", "parameters": {"type": "object"}},
    ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": name("one")}, "tool_choice.function.name"),
        ({"tools": TOOLS, "tool_choice": name("three")}, "tool_choice.function.name"),
        ({"tools": TOOLS, "tool_choice": "always"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "custom", "custom": {"name": "x"}}}, "tool_choice.custom.name"),
        ({"tools": TOOLS, "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "custom"}]}, "tools[0].custom"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a" * 129}}]}, "tools[0].function.name"),
        ({"functions": FUNCTIONS, "tools": TOOLS}, "functions"),
        ({"functions": FUNCTIONS, "function_call": {"name": "three"}}, "function_call.name"),
    ],
)
async def test_what_is_not_there_cannot_be_called(fields: dict[str, Any], param: str) -> None:
    model = scripted_model("x")
    answer = await ask(model, **fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text
    assert model.service.requests == []


async def test_what_this_server_cannot_offer_is_left_out_and_named() -> None:
    tools = [{"type": "web_search"}, *TOOLS, {"type": "computer", "display_width": 1}, TOOLS[0]]
    model = scripted_model("x")
    answer = await ask(model, tools=tools)
    assert answer.status_code == 200
    assert {"tools[0]", "tools[3]", "tools[4]"} <= set(answer.headers["x-ignored-params"].split(","))
    assert isinstance(model.template, PlainTemplate) and model.template.tools[0] is not None
    assert len(model.template.tools[0]) == 2


async def test_only_what_is_not_read_of_a_tool_is_named() -> None:
    custom = {"name": "edit", "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}}}
    read = [*TOOLS, {"type": "function", "name": "flat", "strict": False}, {"type": "custom", "custom": custom}]
    answer = await ask(scripted_model("x"), tools=read)
    assert answer.status_code == 200 and "x-ignored-params" not in answer.headers
    odd = [
        {"type": "function", "function": {"name": "f", "kept": 1}},
        {"type": "web_search", "external_web_access": True},
    ]
    answer = await ask(scripted_model("x"), tools=[*odd, {"type": "custom", "custom": {"name": "e", "color": 2}}])
    assert set(answer.headers["x-ignored-params"].split(",")) == {
        "tools[].function.kept",
        "tools[1]",
        "tools[].custom.color",
    }


async def test_a_chat_with_nothing_to_offer_goes_on_without_tools() -> None:
    model = scripted_model("x")
    answer = await ask(model, tools=[{"type": "web_search"}], tool_choice="auto")
    assert (answer.status_code, answer.headers["x-ignored-params"]) == (200, "tools[0]")
    assert model.service.requests[0].constraint is None


async def test_functions_are_answered_as_they_were_asked() -> None:
    model = scripted_model(*CALL)
    whole = (await ask(model, functions=FUNCTIONS, function_call={"name": "one"})).json()["choices"][0]
    assert whole["message"]["function_call"] == {"name": "one", "arguments": "{}"}
    assert (whole["finish_reason"], "tool_calls" in whole["message"]) == ("function_call", False)
    chunks = events((await ask(model, functions=FUNCTIONS, stream=True)).text)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[1:-1]]
    assert deltas[0] == {"function_call": {"name": "one", "arguments": ""}}
    assert "".join(delta["function_call"]["arguments"] for delta in deltas) == "{}"
    assert chunks[-1]["choices"][0]["finish_reason"] == "function_call"


async def test_a_call_of_a_function_and_its_result_can_be_sent_back() -> None:
    model = scripted_model("x")
    messages = [
        *CHAT["messages"],
        {"role": "assistant", "content": None, "function_call": {"name": "one", "arguments": "{}"}},
        {"role": "function", "name": "one", "content": "17"},
    ]
    assert (await ask(model, messages=messages, functions=FUNCTIONS)).status_code == 200
    assert isinstance(model.template, PlainTemplate)
    sent = model.template.calls[0][0]
    assert sent[1]["tool_calls"][0]["function"] == {"name": "one", "arguments": "{}"}  # type: ignore[index]
    assert (sent[2]["role"], sent[2]["name"]) == ("tool", "one")
