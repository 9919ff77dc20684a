"""Cases of the area "messages": what clients send as messages, and what becomes of them."""

from typing import Any

import httpx
import pytest

from tests.server.harness import CHAT, http_client
from tests.server.scripted.engine import ScriptedModel, prompt_text, scripted_model, templated_model

GAUGE_CALL = {"id": "c1", "type": "function", "function": {"name": "read_gauge", "arguments": "{}"}}
GAUGE = {"type": "function", "function": {"name": "read_gauge", "description": "n", "parameters": {"type": "object"}}}
PLAIN_LINES = "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}"
# The templates of these cases take tools, in one word, so that tools may be sent.
CALLS = (
    "{{ tools is defined }}{% for m in messages %}{{ m.role }}={{ m.content }}"
    "{% for call in m.tool_calls or [] %}%s{% endfor %};{% endfor %}"
)


async def ask(model: ScriptedModel, messages: list[dict[str, Any]], **fields: Any) -> httpx.Response:
    async with http_client(model) as client:
        return await client.post("/v1/chat/completions", json={**CHAT, "messages": messages, **fields})


async def rendered(model: ScriptedModel, messages: list[dict[str, Any]], **fields: Any) -> str:
    answer = await ask(model, messages, **fields)
    assert answer.status_code == 200, answer.text
    return prompt_text(model.service.requests[-1])


def gauge_chat(result: Any, **assistant: Any) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "what does the gauge read?"},
        {"role": "assistant", "tool_calls": [GAUGE_CALL], **assistant},
        {"role": "tool", "tool_call_id": "c1", "content": result},
    ]


async def test_bb_011_the_servers_own_calls_can_be_sent_back() -> None:
    """BB-011: null, empty and absent content of a calling assistant render the same prompt, with call and result."""
    model = templated_model(CALLS.replace("%s", "[{{ call.function.name }}]"), "x")
    variants: list[dict[str, Any]] = [{}, {"content": None}, {"content": ""}]
    prompts = {await rendered(model, gauge_chat("17.2 bar", **each), tools=[GAUGE]) for each in variants}
    assert len(prompts) == 1
    assert "[read_gauge]" in (prompt := prompts.pop()) and "17.2 bar" in prompt


@pytest.mark.parametrize(
    ("wants", "expected"),
    [
        ("{% for key, value in call.function.arguments|items %}{{ key }}:{{ value }},{% endfor %}", 'a:1,b:x"y,'),
        ("{{ call.function.arguments|tojson }}", '{"a": 1, "b": "x\\"y"}'),
        ("{{ '#' + call.function.arguments }}", '#{"a": 1, "b": "x\\"y"}'),
    ],
)
async def test_bb_012_arguments_come_as_the_template_wants_them(wants: str, expected: str) -> None:
    """BB-012: a mapping to iterate, JSON that is not encoded twice, or text."""
    call: dict[str, Any] = {**GAUGE_CALL, "function": {"name": "f", "arguments": '{"a": 1, "b": "x\\"y"}'}}
    model = templated_model(CALLS.replace("%s", wants), "x")
    chat: list[dict[str, Any]] = [{"role": "user", "content": "go"}, {"role": "assistant", "tool_calls": [call]}]
    assert expected in await rendered(model, chat, tools=[GAUGE])


@pytest.mark.parametrize("arguments", ['{"a": ', "not json", "[1]", ""])
async def test_bb_012_broken_arguments_of_the_past_do_not_end_the_chat(arguments: str) -> None:
    """BB-012: what a model once wrote stays in the history for ever."""
    call: dict[str, Any] = {**GAUGE_CALL, "function": {"name": "f", "arguments": arguments}}
    model = templated_model(CALLS.replace("%s", "<{{ call.function.arguments }}>"), "x")
    chat: list[dict[str, Any]] = [{"role": "user", "content": "go"}, {"role": "assistant", "tool_calls": [call]}]
    assert f"<{arguments}>" in await rendered(model, chat, tools=[GAUGE])


async def test_bb_014_a_tool_result_may_come_in_parts() -> None:
    """BB-014: one part is the string; several are joined by line breaks."""
    model = templated_model(CALLS.replace("%s", ""), "x")

    def parts(*texts: str) -> list[dict[str, str]]:
        return [{"type": "text", "text": text} for text in texts]

    plain, one, two = [await rendered(model, gauge_chat(content)) for content in ("T", parts("T"), parts("T1", "T2"))]
    assert plain == one and "tool=T1\nT2;" in two
    assert "[{" not in two and "{'type'" not in two


async def test_bb_016_user_content_may_come_in_parts() -> None:
    """BB-016: one part equals the string, no part equals the empty string, media are refused by their place."""
    model = templated_model(PLAIN_LINES, "x")
    part = {"type": "text", "text": "hello"}
    as_part, as_text, none, empty = [
        await rendered(model, [{"role": "system", "content": "s"}, {"role": "user", "content": content}])
        for content in ([part], "hello", [], "")
    ]
    assert (as_part, none) == (as_text, empty)
    image = [{"type": "image_url", "image_url": {"url": "http://x/a.png"}}]
    refused = await ask(model, [{"role": "system", "content": "s"}, {"role": "user", "content": image}])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages[1].content[0]")


async def test_bb_017_extra_keys_change_nothing_and_wrong_types_are_still_refused() -> None:
    """BB-017: harmless keys of clients are listed; a known key of a wrong type is a 400."""
    plain = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yo"},
        {"role": "user", "content": "ok"},
    ]
    decorated: list[dict[str, Any]] = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
            "id": 7,
            "opts": {"visible": False},
        },
        {
            "role": "assistant",
            "content": "yo",
            "refusal": None,
            "annotations": [],
            "audio": None,
            "function_call": None,
        },
        {"role": "user", "content": "ok"},
    ]
    tool = {"type": "function", "function": {"name": "f", "strict": None, "parameters": {"type": "object"}}, "eager": 1}
    extras = {"store": False, "metadata": {"a": "b"}, "service_tier": "auto", "user": "u1", "x_vendor": {"deep": [1]}}
    model = scripted_model("x")
    await ask(model, plain, tools=[{key: tool[key] for key in ("type", "function")}])
    answer = await ask(model, decorated, tools=[tool], **extras)
    assert answer.status_code == 200
    assert model.service.requests[0].prompt == model.service.requests[1].prompt
    assert {"service_tier", "user", "x_vendor", "messages[].id", "tools[].eager"} <= set(
        answer.headers["x-ignored-params"].split(",")
    )
    wrong = await ask(model, plain, metadata="text")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "metadata")


STRICT = (
    "{% for m in messages %}"
    "{% if m.role == 'system' %}{{ raise_exception('System role is not supported') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    "{{ m.role }}={{ m.content }};{% endfor %}"
)


@pytest.mark.parametrize(
    ("roles", "prompt"),
    [
        ("system user", "user=0\n\n1;"),
        ("user user", "user=0\n\n1;"),
        ("user assistant assistant user", "user=0;assistant=1\n\n2;user=3;"),
        ("assistant user", None),
        ("system system user", "user=0\n\n1\n\n2;"),
        ("system", "user=0;"),
        ("user assistant system user", "user=2\n\n0;assistant=1;user=3;"),
    ],
)
async def test_bb_018_a_strict_template_gets_turns_that_it_takes(roles: str, prompt: str | None) -> None:
    """BB-018: system folds into the first user turn and equal turns are merged, only where the template refuses."""
    model = templated_model(STRICT, "x")
    messages = [{"role": role, "content": str(place)} for place, role in enumerate(roles.split())]
    if prompt is not None:
        assert await rendered(model, messages) == prompt
        return
    answer = await ask(model, messages)
    message = answer.json()["error"]["message"]
    assert answer.status_code == 400 and "Roles must alternate" in message
    assert "{%" not in message and len(message) < 500


async def test_bb_018_a_template_that_takes_everything_gets_it_unchanged() -> None:
    """BB-018: nothing is folded for a template that does not refuse."""
    model = templated_model(PLAIN_LINES, "x")
    messages = [{"role": role, "content": "t"} for role in ("user", "user", "system", "assistant")]
    assert await rendered(model, messages) == "user=t;user=t;system=t;assistant=t;"


async def test_bb_018_long_words_of_a_template_are_clipped() -> None:
    """BB-018: the answer stays short, whatever the template says."""
    model = templated_model("{{ raise_exception('long ' * 1000) }}", "x")
    answer = await ask(model, [{"role": "user", "content": "x"}])
    assert answer.status_code == 400 and len(answer.json()["error"]["message"]) < 500


async def test_bb_019_developer_is_system_and_unknown_roles_are_named() -> None:
    """BB-019: the prompt is that of a system message; role banana is refused by its path."""
    model = templated_model(PLAIN_LINES, "x")
    chats = [[{"role": role, "content": "s"}, {"role": "user", "content": "u"}] for role in ("developer", "system")]
    first, second = [await rendered(model, chat) for chat in chats]
    assert first == second
    refused = await ask(model, [{"role": "banana", "content": "x"}])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages[0].role")


async def test_bb_019_where_system_must_come_first_it_does() -> None:
    """BB-019: several system and developer messages keep their order at the front."""
    source = (
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System first') }}"
        "{% endif %}{{ m.role }}={{ m.content }};{% endfor %}"
    )
    roles = ("user", "developer", "assistant", "system", "user")
    messages = [{"role": role, "content": str(place)} for place, role in enumerate(roles)]
    expected = "system=1\n\n3;user=0;assistant=2;user=4;"
    assert await rendered(templated_model(source, "x"), messages) == expected
