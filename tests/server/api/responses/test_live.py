"""The synchronous OpenAI SDK on a server with a socket, and a model whose own format is parsed."""

from typing import Any

from openai import OpenAI

from tests.server.harness import live_server
from tests.server.scripted.engine import Mark, PlainTemplate, ScriptedModel, ScriptedService, Step
from tests.server.scripted.parted import SOURCE

TOOL: Any = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"where": {"type": "string"}}},
    "strict": False,
}
SCRIPT: tuple[Step, ...] = (
    *(Mark("<think>"), "\nI ", "look.\n", Mark("</think>"), "\n\nOne ", "moment."),
    *(Mark("<tool_call>"), '\n{"name": "look", "arguments": {"wh', 'ere": "up"}}\n', Mark("</tool_call>")),
)


def test_a_turn_with_thinking_and_a_tool_then_its_result() -> None:
    model = ScriptedModel(ScriptedService(SCRIPT), template=PlainTemplate(SOURCE))
    ask: dict[str, Any] = {"model": "scripted", "tools": [TOOL]}
    with live_server(model) as server, OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0) as client:
        whole = client.responses.create(**ask, input="Hi")
        with client.responses.stream(**ask, input="Hi") as stream:
            streamed = stream.get_final_response()
        call: Any = whole.output[2]
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sky"}
        again = client.responses.create(**ask, input=[result], previous_response_id=whole.id)
    for response in (whole, streamed, again):
        assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
        assert response.output_text == "One moment."
        called: Any = response.output[2]
        assert (called.name, called.arguments) == ("look", '{"where": "up"}')
