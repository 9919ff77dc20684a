"""The synchronous Anthropic SDK on a server with a socket, and a model whose own format is parsed."""

from typing import Any

from anthropic import Anthropic
from anthropic.types import Message

from tests.server.api.messages.anthropic_harness import ASK
from tests.server.harness import live_server
from tests.server.scripted.engine import Mark, PlainTemplate, ScriptedModel, ScriptedService, Step
from tests.server.scripted.parted import SOURCE

TOOL: Any = {"name": "look", "input_schema": {"type": "object", "properties": {"where": {"type": "string"}}}}
SCRIPT: tuple[Step, ...] = (
    *(Mark("<think>"), "\nI ", "look.\n", Mark("</think>"), "\n\nOne ", "moment."),
    *(Mark("<tool_call>"), '\n{"name": "look", "arguments": {"wh', 'ere": "up"}}\n', Mark("</tool_call>")),
)


def test_a_turn_with_thinking_and_a_tool_then_its_result() -> None:
    model = ScriptedModel(ScriptedService(SCRIPT), template=PlainTemplate(SOURCE))
    with live_server(model) as server, Anthropic(base_url=server.url, api_key="unused", max_retries=0) as client:
        whole = client.messages.create(**ASK, tools=[TOOL])
        with client.messages.stream(**ASK, tools=[TOOL]) as stream:
            streamed = stream.get_final_message()
        result: Any = {"type": "tool_result", "tool_use_id": call_of(whole)["id"], "content": "sky"}
        turns: Any = [*ASK["messages"], whole.to_param(), {"role": "user", "content": [result]}]
        again = client.messages.create(**{**ASK, "messages": turns}, tools=[TOOL])
    for message in (whole, streamed, again):
        assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
        assert message.content[1].model_dump()["text"] == "One moment."
        assert (call_of(message)["name"], call_of(message)["input"]) == ("look", {"where": "up"})
        assert message.stop_reason == "tool_use"


def call_of(message: Message) -> Any:
    return message.content[2].model_dump()
