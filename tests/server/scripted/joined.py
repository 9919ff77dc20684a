"""Puts the chunks of a stream together again, and is strict about the form in which they come."""

from dataclasses import dataclass, field
from typing import Any

import orjson

Json = dict[str, Any]


@dataclass
class JoinedChoice:
    content: str = ""
    reasoning: str = ""
    calls: list[Json] = field(default_factory=list)
    logprobs: list[Json] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finish: Json | None = None
    chunks: int = 0

    def take(self, choice: Json) -> None:
        assert self.finish is None, "nothing follows the finish"
        delta = choice["delta"]
        assert ("role" in delta) == (self.chunks == 0), "the role comes first, and once"
        if self.chunks == 0:
            assert delta == {"role": "assistant", "content": ""}
        self.chunks += 1
        self.content += delta.get("content", "")
        self.reasoning += delta.get("reasoning", "")
        assert delta.get("reasoning") == delta.get("reasoning_content")
        for piece in delta.get("tool_calls", []):
            self._take_call(piece)
        self.logprobs += (choice["logprobs"] or {"content": []})["content"]
        self.token_ids += choice.get("token_ids", [])
        if choice["finish_reason"] is not None:
            assert delta == {}
            self.finish = {key: choice[key] for key in ("finish_reason", "stop_reason") if key in choice}

    def _take_call(self, piece: Json) -> None:
        if piece["index"] == len(self.calls):
            assert piece.keys() == {"index", "id", "type", "function"} and piece["function"]["arguments"] == ""
            self.calls.append({"name": piece["function"]["name"], "arguments": "", "id": piece["id"]})
            return
        assert piece["index"] == len(self.calls) - 1, "calls follow each other"
        assert piece.keys() == {"index", "function"} and piece["function"].keys() == {"arguments"}
        self.calls[-1]["arguments"] += piece["function"]["arguments"]


@dataclass
class JoinedStream:
    choices: dict[int, JoinedChoice]
    usage: Json | None
    timings: Json


def events(body: str) -> list[Json]:
    """The data of a stream that ends as it should."""
    assert body.endswith("data: [DONE]\n\n")
    frames = [frame for frame in body.split("\n\n") if frame.startswith("data: {")]
    return [orjson.loads(frame.removeprefix("data: ")) for frame in frames]


def joined(body: str) -> JoinedStream:
    """A chat's stream of any number of choices."""
    chunks = events(body)
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    choices: dict[int, JoinedChoice] = {}
    for chunk in chunks:
        assert len(chunk["choices"]) == 1 or chunk is chunks[-1]
        for choice in chunk["choices"]:
            choices.setdefault(choice["index"], JoinedChoice()).take(choice)
    assert all(choice.finish for choice in choices.values())
    return JoinedStream(choices, chunks[-1].get("usage"), chunks[-1]["timings"])


def whole_choice(choice: Json) -> JoinedChoice:
    """A choice of a whole answer in the same form."""
    message = choice["message"]
    calls = [{**call["function"], "id": call["id"]} for call in message.get("tool_calls", [])]
    return JoinedChoice(
        content=message["content"] or "",
        reasoning=message.get("reasoning", ""),
        calls=calls,
        logprobs=(choice["logprobs"] or {"content": []})["content"],
        token_ids=choice.get("token_ids", []),
        finish={key: choice[key] for key in ("finish_reason", "stop_reason") if key in choice},
    )
