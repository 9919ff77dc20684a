"""Tiny models of random weights, with templates of real ones, behind a real engine, server and socket."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from engine.api.config import EngineConfig
from engine.model import ServedModel, load_model
from server.settings import ServingOptions
from tests.engine.text.vocabularies import load, tiny_spm_metadata
from tests.server.harness import LiveServer, live_server
from tests.server.scripted.joined import JoinedChoice, events, joined, whole_choice
from tests.tiny.models import CHATML, write_tiny_llama

Json = dict[str, Any]

CHAT_PATH = "/v1/chat/completions"
TEXT_PATH = "/v1/completions"
HI: list[Json] = [{"role": "user", "content": "Hi"}]
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
PIECES = ("▁", "▁the", "he", "ll", "hello", "▁hello", "é", "한")
# Each: what differs from a tiny model of bytes. Templates are published ones; "thinks" has to be told to think.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"chat_template": CHATML},
    "words": {"chat_template": CHATML, "context": 4096},
    "calls": {"tags": TAGS, "chat_template": "Qwen-Qwen2.5-7B-Instruct", "context": 4096},
    "thinks": {"tags": TAGS, "chat_template": "Qwen-Qwen3-0.6B", "context": 4096},
    "opens": {"tags": TAGS, "chat_template": "Qwen-QwQ-32B", "context": 4096},
    "pieces": {
        "tokenizer": tiny_spm_metadata({piece: -1.0 - place for place, piece in enumerate(PIECES)}, bos_token_id=1),
        "vocab": 259 + len(PIECES),
    },
}


class RealServer:
    """What the tests of this folder ask; answers that were to succeed are checked to have done so."""

    def __init__(self, live: LiveServer) -> None:
        self.live = live
        self.model: ServedModel = live.model
        self.http = httpx.Client(base_url=live.url, timeout=60, limits=httpx.Limits(max_connections=None))

    def post(self, path: str, body: Mapping[str, Any], **headers: str) -> httpx.Response:
        """The answer to a body, whose model need not be named."""
        return self.http.post(path, json={"model": self.model.id, **body}, headers=headers)

    def chat(self, **fields: Any) -> Json:
        return self.answer(CHAT_PATH, {"messages": HI, **fields})

    def complete(self, **fields: Any) -> Json:
        return self.answer(TEXT_PATH, {"prompt": "Hi", **fields})

    def answer(self, path: str, body: Mapping[str, Any]) -> Json:
        answer = self.post(path, body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def choices(self, **fields: Any) -> list[JoinedChoice]:
        """The choices of a chat, after the same was asked for as a stream and found to be equal."""
        fields = {"messages": HI, "seed": 1, **fields}
        whole = self.chat(**fields)
        body = {**fields, "stream": True, "stream_options": {"include_usage": True}}
        raw = self.post(CHAT_PATH, body).content.decode()  # bytes that are no UTF-8 would raise
        stream = joined(raw)
        choices = [whole_choice(choice) for choice in whole["choices"]]
        streamed = [_comparable(stream.choices[place]) for place in range(len(choices))]
        assert streamed == [*map(_comparable, choices)], (streamed, choices)
        assert _uncached(stream.usage) == _uncached(whole["usage"])
        return choices

    def texts(self, **fields: Any) -> tuple[str, str, Json]:
        """Text, finish reason and usage of a completion, streamed and whole alike."""
        fields = {"prompt": "Hi", "seed": 1, **fields}
        whole = self.complete(**fields)
        body = {**fields, "stream": True, "stream_options": {"include_usage": True}}
        *chunks, last = events(self.post(TEXT_PATH, body).content.decode())
        text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
        choice = whole["choices"][0]
        assert (text, chunks[-1]["choices"][0]["finish_reason"]) == (choice["text"], choice["finish_reason"])
        assert _uncached(last["usage"]) == _uncached(whole["usage"])
        return text, choice["finish_reason"], whole["usage"]

    def refusal(self, path: str, body: Mapping[str, Any], status: int = 400) -> Json:
        """The error, which has the shape of OpenAI's."""
        answer = self.post(path, body)
        assert answer.status_code == status, answer.text
        error = dict(answer.json()["error"])
        assert error.keys() >= {"message", "type", "param", "code"} and error["message"]
        return error

    def prompt(self, messages: list[Json], **fields: Any) -> str:
        """The text that the model reads."""
        return str(self.answer("/apply-template", {"messages": messages, **fields})["prompt"])

    def prompt_ids(self, messages: list[Json], **fields: Any) -> list[int]:
        return list(self.answer("/apply-template", {"messages": messages, **fields})["token_ids"])

    def token(self, name: str) -> int:
        """The id of a token by its name."""
        return self.model.tokenizer.encode(name, parse_special=True)[0]

    def is_idle(self) -> bool:
        """Whether nothing runs or waits, and no memory of keys and values is held."""
        status = self.model.service.status()
        return not status.running and not status.waiting and status.free_blocks == status.blocks


def _comparable(choice: JoinedChoice) -> tuple[object, ...]:
    calls = [(call["name"], call["arguments"]) for call in choice.calls]
    return choice.content, choice.reasoning, calls, choice.logprobs, choice.token_ids, choice.finish


def tiny_model(folder: Path, kind: str, seed: int = 3, **changes: Any) -> Path:
    """A model file of one of the kinds."""
    options = {"vocab": 320, "context": 512, "layers": 1, **KINDS[kind], **changes}
    published = load("templates").get(options.get("chat_template"))
    if published is not None:
        options["chat_template"] = published
    return write_tiny_llama(folder / f"{kind}.gguf", seed=seed, **options)


@contextmanager
def serving(path: Path, options: ServingOptions | None = None, **load_options: Any) -> Iterator[RealServer]:
    model = load_model(str(path), EngineConfig(threads=1, **load_options), lambda stage, share: None)
    with live_server(model, options or ServingOptions(drain_seconds=0, ping_seconds=0)) as live:
        server = RealServer(live)
        try:
            yield server
        finally:
            server.http.close()


def _uncached(usage: Json | None) -> Json:
    """A usage without what tells that the prompt was asked before."""
    assert usage is not None
    return {name: value for name, value in usage.items() if name != "prompt_tokens_details"}
