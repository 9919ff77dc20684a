"""Tools for a template that never says which there are: the declarations reach the model in the system message."""

from tests.server.harness import CHAT, http_client
from tests.server.scripted.engine import prompt_text, templated_model

# As DeepSeek V3.1's: it writes calls, and reads no tools.
CALL = (
    "<|tool_calls_begin|><|tool_call_begin|>{{ call.function.name }}<|tool_sep|>{{ call.function.arguments }}"
    "<|tool_call_end|><|tool_calls_end|>"
)
SILENT = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n"
    "{% for call in message.tool_calls or [] %}" + CALL.replace("|", "\uff5c").replace("_", "\u2581") + "{% endfor %}"
    "{% endfor %}assistant: "
)
TELLING = "{{ tools | length if tools else 0 }} tools\n" + SILENT
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
    },
}


async def prompt_of(source: str, *messages: dict[str, str]) -> str:
    model = templated_model(source, "Sunny.")
    async with http_client(model) as client:
        chat = CHAT | {"messages": [*messages, {"role": "user", "content": "Rain?"}], "tools": [TOOL]}
        answer = await client.post("/v1/chat/completions", json=chat)
    assert answer.status_code == 200, answer.text
    return prompt_text(model.service.requests[0])


async def test_a_template_that_reads_no_tools_gets_them_in_words() -> None:
    prompt = await prompt_of(SILENT)
    assert prompt.startswith("system: ## Tools\n") and "### weather\nDescription: Tells the weather." in prompt
    assert '"town": {"type": "string"}' in prompt


async def test_they_follow_the_instructions_that_are_there() -> None:
    prompt = await prompt_of(SILENT, {"role": "system", "content": "Be short."})
    assert prompt.startswith("system: Be short.\n\n## Tools\n") and prompt.count("system: ") == 1


async def test_a_template_that_reads_tools_gets_them_as_they_are() -> None:
    prompt = await prompt_of(TELLING)
    assert prompt.startswith("1 tools\n") and "## Tools" not in prompt
