"""A conversation by way of LangChain: a streamed answer that calls tools, a streamed text, and an answer as data.

Usage: python langchain_tools.py [URL] [MODEL]   (pip install langchain-openai)
"""

# mypy: disable-error-code="import-not-found"

import sys

from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

TEMPERATURES = {"Paris": 14, "Oslo": 9}


class Town(BaseModel):
    """A town, as data."""

    name: str
    country: str
    inhabitants: int


def get_weather(town: str) -> str:
    """The weather in a town now."""
    return f"{TEMPERATURES[town]} degrees in {town}"


def ask_with_tools(chat: ChatOpenAI, question: str) -> str:
    caller = chat.bind_tools([get_weather])
    messages: list[BaseMessage] = [HumanMessage(question)]
    while True:
        answer = AIMessageChunk("")
        for chunk in caller.stream(messages):
            answer += chunk
        if not answer.tool_calls:
            return str(answer.text)
        results = [ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"]) for call in answer.tool_calls]
        messages += [answer, *results]


def main(url: str = "http://127.0.0.1:8080", model: str = "smollm2-135m") -> None:
    chat = ChatOpenAI(base_url=f"{url}/v1", api_key="not-needed", model=model)
    print(ask_with_tools(chat, "What is the weather in Paris and in Oslo?"))
    print("".join(chunk.text for chunk in chat.stream("Say hello to Zoë.")))
    print(chat.with_structured_output(Town).invoke("Describe Paris."))


if __name__ == "__main__":
    main(*sys.argv[1:])
