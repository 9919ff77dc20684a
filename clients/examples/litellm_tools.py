"""A conversation by way of LiteLLM: a streamed answer that calls tools, a streamed text, and an answer as data.

Usage: python litellm_tools.py [URL] [MODEL]   (pip install litellm)
"""

# mypy: disable-error-code="import-not-found"

import json
import sys
from collections.abc import Iterable
from functools import partial

import litellm
from pydantic import BaseModel

TEMPERATURES = {"Paris": 14, "Oslo": 9}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a town now.",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
    },
}


class Town(BaseModel):
    """A town, as data."""

    name: str
    country: str
    inhabitants: int


def get_weather(town: str) -> str:
    return f"{TEMPERATURES[town]} degrees in {town}"


def user(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def whole(stream: Iterable[object]) -> litellm.Message:
    return litellm.stream_chunk_builder(list(stream)).choices[0].message


def main(url: str = "http://127.0.0.1:8080", model: str = "smollm2-135m") -> None:
    litellm.suppress_debug_info = True  # it would print its advice among the answers
    ask = partial(litellm.completion, model=f"openai/{model}", api_base=f"{url}/v1", api_key="not-needed")

    messages = [user("What is the weather in Paris and in Oslo?")]
    while calls := (answer := whole(ask(messages=messages, tools=[TOOL], stream=True))).tool_calls:
        messages.append(answer)
        for call in calls:
            result = get_weather(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    print(answer.content)

    chunks = ask(messages=[user("Say hello to Zoë.")], stream=True)
    print("".join(chunk.choices[0].delta.content or "" for chunk in chunks))

    described = ask(messages=[user("Describe Paris.")], response_format=Town)
    print(Town.model_validate_json(described.choices[0].message.content))


if __name__ == "__main__":
    main(*sys.argv[1:])
