"""Area messages: what clients send as a chat, read by published templates and answered by a real engine.

What each shape of template gets is tested beside the scripted engine, by the same case ids.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tests.cases.real import CHAT_PATH, HI, Json, RealServer, serving, tiny_model
from tests.engine.text.vocabularies import load

GAUGE: Json = {
    "type": "function",
    "function": {"name": "read_gauge", "description": "n", "parameters": {"type": "object", "properties": {}}},
}
CALL: Json = {"id": "c1", "type": "function", "function": {"name": "read_gauge", "arguments": "{}"}}


@pytest.fixture(params=["calls", "thinks", "opens"])
def server(request: pytest.FixtureRequest) -> RealServer:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


def gauge_chat(result: Any = "17.2 bar", **assistant: Any) -> list[Json]:
    return [
        {"role": "user", "content": "what does the gauge read?"},
        {"role": "assistant", "tool_calls": [CALL], **assistant},
        {"role": "tool", "tool_call_id": "c1", "content": result},
    ]


def greedy(server: RealServer, messages: list[Json], **fields: Any) -> tuple[str, int]:
    """The answer and the length of its prompt."""
    answer = server.chat(messages=messages, temperature=0, max_tokens=8, **fields)
    message = answer["choices"][0]["message"]
    return repr([message.get(key) for key in ("content", "reasoning")]), answer["usage"]["prompt_tokens"]


def test_a_calling_message_without_content_can_be_sent_back(server: RealServer) -> None:
    """BB-011: the server's own answer (content null and tool_calls) is refused, or dropped from the prompt."""
    variants: list[Json] = [{"content": None}, {"content": ""}, {}, {"content": []}]
    chats = [gauge_chat(**variant) for variant in variants]
    assert len({greedy(server, chat, tools=[GAUGE]) for chat in chats}) == 1
    (prompt,) = {server.prompt(chat, tools=[GAUGE]) for chat in chats}
    assert '{"name": "read_gauge", "arguments": {}}' in prompt and "17.2 bar" in prompt


def test_an_answer_of_ours_can_be_sent_back_as_it_came(server: RealServer) -> None:
    """BB-011: the whole message, with all its keys, for several turns; and the prompt holds every one of them."""
    function = {**GAUGE["function"], "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
    fields: Json = {"tools": [{**GAUGE, "function": function}], "tool_choice": "required", "parallel_tool_calls": False}
    chat: list[Json] = [*HI]
    for turn in range(3):
        answer = server.chat(messages=chat, max_tokens=300, thinking_token_budget=4, seed=turn, **fields)
        message = answer["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": f"{turn} bar"}
        chat += [message, result]
    prompt = server.prompt(chat, tools=[GAUGE])
    assert prompt.count('<tool_call>\n{"name": "read_gauge", "arguments": {}}\n</tool_call>') == 3
    assert all(f"{turn} bar" in prompt for turn in range(3))


@pytest.mark.parametrize("name", ["Qwen-Qwen2.5-7B-Instruct", "Qwen-Qwen3-0.6B", "Qwen-QwQ-32B"])
@pytest.mark.parametrize("arguments", ['{"a": 1, "b": "x\\"y"}', "{}", '{"ü": [{"é": null}], "t": "<|im_end|>"}'])
def test_published_templates_get_arguments_as_their_authors_meant(
    request: pytest.FixtureRequest, name: str, arguments: str
) -> None:
    """BB-012: arguments are a string in the API and an object in templates; compared with a plain Jinja render."""
    kind = {"Qwen-Qwen2.5-7B-Instruct": "calls", "Qwen-Qwen3-0.6B": "thinks", "Qwen-QwQ-32B": "opens"}[name]
    server: RealServer = request.getfixturevalue(kind)
    call = {**CALL, "function": {"name": "read_gauge", "arguments": arguments}}
    chat = gauge_chat(content="", tool_calls=[call])
    assert server.prompt(chat, tools=[GAUGE]) == reference(load("templates")[name], chat, [GAUGE])
    assert greedy(server, chat, tools=[GAUGE])[1] == len(server.prompt_ids(chat, tools=[GAUGE]))


def reference(source: str, chat: list[Json], tools: list[Json]) -> str:
    """What transformers would render, arguments as objects."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    messages = [
        {**message, "tool_calls": [parsed(call) for call in message["tool_calls"]]}
        if "tool_calls" in message
        else message
        for message in chat
    ]
    return environment.from_string(source).render(messages=messages, tools=tools, add_generation_prompt=True)


def parsed(call: Json) -> Json:
    return {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}


@pytest.mark.parametrize(
    ("wants", "shown"),
    [
        ("{% for k, v in c.function.arguments|items %}<{{ k }}={{ v }}>{% endfor %}", '<a=1><b=x"y>'),
        ("{% for k in c.function.arguments %}<{{ k }}>{% endfor %}", "<a><b>"),
        ("{{ c.function.arguments|tojson }}", '{"a": 1, "b": "x\\"y"}'),
        ("{{ 'A: ' + c.function.arguments }}", 'A: {"a": 1, "b": "x\\"y"}'),
    ],
)
def test_templates_of_every_taste_are_served(tmp_path: Path, wants: str, shown: str) -> None:
    """BB-012: one iterates the arguments, one writes them as JSON, one joins them as text; none is a 500."""
    source = (
        "{{ tools }}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}@%{% endfor %}{% endfor %}"
    )
    call = {**CALL, "function": {"name": "read_gauge", "arguments": '{"a": 1, "b": "x\\"y"}'}}
    with serving(tiny_model(tmp_path, "calls", chat_template=source.replace("@%", wants))) as server:
        assert shown in server.prompt(gauge_chat(tool_calls=[call]), tools=[GAUGE])
        assert server.post(CHAT_PATH, {"messages": gauge_chat(tool_calls=[call]), "max_tokens": 2}).status_code == 200


def test_results_in_parts_read_like_strings(server: RealServer) -> None:
    """BB-014: the result of a tool as parts vanishes, or is rendered as a Python list."""
    text, one, two = "T", [{"type": "text", "text": "T"}], [{"type": "text", "text": each} for each in ("T1", "T2")]
    assert greedy(server, gauge_chat(text)) == greedy(server, gauge_chat(one))
    prompt = server.prompt(gauge_chat(two))
    assert "T1\nT2" in prompt and "[{" not in prompt and "{'type'" not in prompt
    assert server.prompt(gauge_chat([])) == server.prompt(gauge_chat(""))


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_content_in_parts_reads_like_a_string(server: RealServer, role: str) -> None:
    """BB-016: parts, which most clients always send, are refused or written out as a list."""

    def chat(content: object) -> list[Json]:
        return [{"role": role, "content": content}, {"role": "user", "content": "go"}]

    one = [{"type": "text", "text": "hello "}]
    two = [*one, {"type": "text", "text": "world"}]
    assert greedy(server, chat(one)) == greedy(server, chat("hello "))
    assert server.prompt(chat(two)) == server.prompt(chat("hello \nworld"))
    assert server.prompt(chat([])) == server.prompt(chat(""))


@pytest.mark.parametrize(
    "part", [{"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "input_audio"}, {"type": "file"}]
)
@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_a_part_that_is_no_text_is_refused_by_its_place(calls: RealServer, role: str, part: Json) -> None:
    """BB-016: it is never dropped."""
    message = {"role": role, "tool_call_id": "c1", "content": [{"type": "text", "text": "x"}, part]}
    error = calls.refusal(CHAT_PATH, {"messages": [*gauge_chat(), message]})
    assert error["param"] == "messages[3].content[1]"


def test_harmless_extra_keys_change_nothing(server: RealServer) -> None:
    """BB-017: clients add keys that mean nothing to a server, and a strict one refuses them all."""
    plain: Json = {
        "messages": [*HI, {"role": "assistant", "content": "yo"}, {"role": "user", "content": "ok"}],
        "tools": [GAUGE],
        "tool_choice": "none",
    }
    first = {
        "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}],
        "id": 7,
        "opts": {"a": 1},
    }
    second: Json = {
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "id": "msg_1",
        "status": "x",
    }
    decorated: Json = {
        "messages": [{**HI[0], **first}, {**plain["messages"][1], **second}, plain["messages"][2]],
        "tools": [{**GAUGE, "eager_input_streaming": True, "function": {**GAUGE["function"], "strict": None, "x": 1}}],
        "store": False,
        "metadata": {"a": "b"},
        "service_tier": "auto",
        "user": "u1",
        "x_vendor": {"deep": [1]},
    }
    assert server.prompt_ids(**plain) == server.prompt_ids(**{**plain, **decorated})
    assert greedy(server, plain.pop("messages"), **plain) == greedy(
        server, decorated.pop("messages"), **{**plain, **decorated}
    )


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"metadata": ["a"]}, "metadata"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, "messages[0].content[0].text"),
        ({"tools": [{"type": "function", "function": {"name": 5}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": "yes"}}]}, "tools[0].function.strict"),
        ({"stream_options": 5, "stream": True}, "stream_options"),
        ({"messages": [{"role": "assistant", "content": "x", "tool_calls": {}}]}, "messages[0].tool_calls"),
    ],
)
def test_a_known_key_of_a_wrong_type_is_still_refused(calls: RealServer, change: Json, param: str) -> None:
    """BB-017: by its path, in OpenAI's shape."""
    assert calls.refusal(CHAT_PATH, {"messages": HI, **change})["param"] == param


SHOWN = "<{{ m.role }}>{{ m.content }}"
STRICT = {
    "no system": "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}"
    f"{{% endif %}}{SHOWN}{{% endfor %}}",
    "alternating": "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    f"{{{{ raise_exception('Roles must alternate') }}}}{{% endif %}}{SHOWN}{{% endfor %}}",
    "gemma": load("templates")["google-gemma-2-2b-it"],
}
CHATS = ("system user", "user user", "user assistant assistant user", "assistant user", "system system user", "system")


@pytest.mark.parametrize("name", STRICT)
def test_a_template_that_refuses_is_no_fault_of_the_server(tmp_path: Path, name: str) -> None:
    """BB-018: raise_exception in a template is answered with 500 and the template's source."""
    with serving(tiny_model(tmp_path, "plain", chat_template=STRICT[name])) as server:
        for roles in CHATS:
            messages = [{"role": role, "content": f"text{place}"} for place, role in enumerate(roles.split())]
            answer = server.post(CHAT_PATH, {"messages": messages, "max_tokens": 1})
            if answer.status_code == 200:
                prompt = server.prompt(messages)
                places = [prompt.find(f"text{place}") for place in range(len(messages))]
                assert places[0] >= 0 and places == sorted(places), (roles, prompt)
                continue
            error = answer.json()["error"]
            assert (answer.status_code, error["type"]) == (400, "invalid_request_error"), roles
            assert len(error["message"]) < 500 and "{%" not in error["message"] and "Traceback" not in error["message"]
        assert server.post(CHAT_PATH, {"messages": HI, "max_tokens": 1}).status_code == 200


def test_developer_is_system(server: RealServer) -> None:
    """BB-019: the role that modern clients send is unknown to templates."""

    def chat(role: str) -> list[Json]:
        return [{"role": role, "content": "Answer in one word."}, *HI]

    assert greedy(server, chat("developer")) == greedy(server, chat("system"))
    later = [*HI, {"role": "developer", "content": "a"}, *HI, {"role": "system", "content": "b"}, *HI]
    prompt = server.prompt(later)
    assert 0 < prompt.find("a<|im_end|>") < prompt.find("b<|im_end|>")
    assert server.refusal(CHAT_PATH, {"messages": chat("banana")})["param"] == "messages[0].role"


def test_where_the_system_message_must_come_first_later_ones_join_it(tmp_path: Path) -> None:
    """BB-019: Qwen 3.5's own template refuses a system message that is not first."""
    template = load("templates")["Qwen3.5-4B"]
    with serving(tiny_model(tmp_path, "calls", chat_template=template)) as server:
        chat = [*HI, {"role": "developer", "content": "first"}, *HI, {"role": "system", "content": "second"}, *HI]
        prompt = server.prompt(chat)
        assert prompt.startswith("<|im_start|>system\nfirst\n\nsecond<|im_end|>")
        assert server.post(CHAT_PATH, {"messages": chat, "max_tokens": 1}).status_code == 200
