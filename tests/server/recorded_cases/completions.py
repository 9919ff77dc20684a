"""Recorded cases of POST /v1/completions."""

from typing import Any

from engine.api.request import Request
from engine.errors import EngineFaultError
from tests.server.recorded_cases.exchange import Build, Case, says, whole_and_streamed
from tests.server.scripted.engine import ScriptedModel, ScriptedService, ScriptedTokenizer

PATH = "/v1/completions"


class NoInfill(ScriptedTokenizer):
    """Of a model that writes no text between two others."""

    infill_ids = None


def no_infill() -> ScriptedModel:
    service = ScriptedService()
    service.tokenizer = NoInfill()
    return ScriptedModel(service)


def echoing() -> ScriptedModel:
    """Answers with its prompt and the number of its choice."""

    def script(request: Request) -> list[str]:
        return [bytes(request.prompt).decode().upper(), str(request.choice)]

    return ScriptedModel(ScriptedService(script))


HELLO = says("Hello", " wörld")


def both(name: str, model: Build = HELLO, **fields: Any) -> list[Case]:
    body = {"model": "scripted", "prompt": "Say:", **fields}
    return whole_and_streamed("completions", name, PATH, body, model=model)


CASES: list[Case] = [
    *both("plain"),
    *both("token ids as prompt", prompt=[97, 98, 99]),
    *both("several prompts", echoing, prompt=["ab", "cd"], n=2),
    *both("several prompts of token ids", echoing, prompt=[[97, 98], [99]]),
    *both("echo", echo=True),
    *both("echo with logprobs", echo=True, logprobs=1),
    *both("echo of several prompts", echoing, prompt=["ab", "cd"], echo=True),
    *both("a scored prompt", echo=True, max_tokens=0, logprobs=2),
    *both("logprobs", logprobs=2),
    *both("no alternatives in logprobs", logprobs=0),
    *both("max_tokens", says("a", "b", "c"), max_tokens=2),
    *both("a stop string", says("one ", "ST", "OP", " two"), stop="STOP"),
    *both("a suffix", suffix="end"),
    *both("a suffix for a model that cannot infill", no_infill, suffix="end"),
    *both("a suffix with echo", suffix="end", echo=True),
    *both("token ids and metadata", return_token_ids=True, metadata={"run": "7"}),
    *both("ignored parameters", user="u", novel=1),
    *both("best_of", best_of=2),
    *both("an empty prompt", prompt=""),
    *both("a prompt of the wrong type", prompt=["a", 5]),
    *both("the engine fails midway", says("a", EngineFaultError("Broken."))),
    *both("usage of two prompts", echoing, prompt=["ab", "cd"])[:1],
    *whole_and_streamed(
        "completions",
        "with usage",
        PATH,
        {"model": "scripted", "prompt": ["ab", "cd"], "stream_options": {"include_usage": True}},
        model=echoing,
    ),
]
