"""A conversation by way of pydantic-ai: a streamed answer that calls tools, a streamed text, and an answer as data.

Usage: python pydantic_ai_tools.py [URL] [MODEL]   (pip install 'pydantic-ai-slim[openai]')
"""

# mypy: disable-error-code="import-not-found"

import asyncio
import sys

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

TEMPERATURES = {"Paris": 14, "Oslo": 9}


class Town(BaseModel):
    """A town, as data."""

    name: str
    country: str
    inhabitants: int


def get_weather(town: str) -> str:
    """The weather in a town now."""
    return f"{TEMPERATURES[town]} degrees in {town}"


async def main(url: str = "http://127.0.0.1:8080", model: str = "smollm2-135m") -> None:
    served = OpenAIChatModel(model, provider=OpenAIProvider(base_url=f"{url}/v1", api_key="not-needed"))

    helper = Agent(served, tools=[get_weather])
    for question in ("What is the weather in Paris and in Oslo?", "Say hello to Zoë."):
        async with helper.run_stream(question) as answer:
            print("".join([text async for text in answer.stream_text(delta=True)]))

    described = await Agent(served, output_type=Town).run("Describe Paris.")
    print(described.output)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
