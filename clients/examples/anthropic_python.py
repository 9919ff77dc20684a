"""Ask the server with the Anthropic SDK for Python: a question that needs a tool, then a streamed answer.

Usage: python anthropic_python.py [URL] [MODEL]   (pip install anthropic)
"""

import sys

from anthropic import Anthropic, beta_tool

TEMPERATURES = {"Paris": 14, "Oslo": 9}


@beta_tool
def get_weather(town: str) -> str:
    """The weather in a town now."""
    return f"{TEMPERATURES[town]} degrees in {town}"


def main(url: str = "http://127.0.0.1:8080", model: str = "smollm2-135m") -> None:
    client = Anthropic(base_url=url, api_key="not-needed")
    runner = client.beta.messages.tool_runner(
        model=model,
        max_tokens=1024,
        tools=[get_weather],
        messages=[{"role": "user", "content": "What is the weather in Paris and in Oslo?"}],
    )
    print("".join(block.text for block in runner.until_done().content if block.type == "text"))

    greeting = "Say hello to Zoë."
    with client.messages.stream(
        model=model, max_tokens=1024, messages=[{"role": "user", "content": greeting}]
    ) as stream:
        for text in stream.text_stream:
            print(text, end="", flush=True)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
