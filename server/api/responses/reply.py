"""One response as it comes to be: every part of the answer changes it, and every change is a numbered event.

The response's output is a list of items: texts, thoughts and calls. A text's log probabilities are told piece by piece.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from engine.api.request import Token
from engine.text.formats.parts import CallArguments, CallBegin, CallEnd, Content, Part, Reasoning
from engine.text.tokenizer import Tokenizer
from server.api.responses.body import ResponsesBody
from server.api.responses.store import response_head
from server.generate.answer import Context, Finish, Json, Parser, Plan
from server.generate.figures import chat_logprobs, timings
from server.generate.reply import EventReply
from server.wire.wire_error import WireError

Status = Literal["in_progress", "completed", "incomplete"]


class OpenItem(Protocol):
    """An item that is not complete yet; the events carry no numbers, and know their item's place."""

    def added(self) -> list[Json]: ...

    def done(self, status: Status) -> list[Json]: ...

    def whole(self, status: Status) -> Json: ...


class _Item:
    """What all kinds share."""

    def __init__(self, prefix: str, index: int) -> None:
        self.id = f"{prefix}_{secrets.token_hex(16)}"
        self.index = index
        self.pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def _event(self, kind: str, **fields: object) -> Json:
        return {"type": kind, "item_id": self.id, "output_index": self.index, **fields}

    def _item_event(self, kind: str, item: Json) -> Json:
        return {"type": f"response.output_item.{kind}", "output_index": self.index, "item": item}


class TextMessage(_Item):
    """What is said to the user."""

    def __init__(self, index: int) -> None:
        super().__init__("msg", index)
        self._logprobs: list[Json] = []

    def added(self) -> list[Json]:
        empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        return [
            self._item_event("added", self._with("in_progress", [])),
            self._event("response.content_part.added", content_index=0, part=empty),
        ]

    def delta(self, text: str, logprobs: Sequence[Json]) -> Json:
        self.pieces.append(text)
        self._logprobs += logprobs
        return self._event("response.output_text.delta", content_index=0, delta=text, logprobs=list(logprobs))

    def done(self, status: Status) -> list[Json]:
        return [
            self._event("response.output_text.done", content_index=0, text=self.text, logprobs=self._logprobs),
            self._event("response.content_part.done", content_index=0, part=self._part()),
            self._item_event("done", self.whole(status)),
        ]

    def whole(self, status: Status) -> Json:
        return self._with(status, [self._part()])

    def _part(self) -> Json:
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": self._logprobs}

    def _with(self, status: Status, content: list[Json]) -> Json:
        return {"id": self.id, "type": "message", "status": status, "role": "assistant", "content": content}


class Thought(_Item):
    """Reasoning, in full: nothing here summarizes it."""

    def __init__(self, index: int) -> None:
        super().__init__("rs", index)

    def added(self) -> list[Json]:
        return [
            self._item_event("added", self._with("in_progress", [])),
            self._event("response.content_part.added", content_index=0, part={"type": "reasoning_text", "text": ""}),
        ]

    def delta(self, text: str) -> Json:
        self.pieces.append(text)
        return self._event("response.reasoning_text.delta", content_index=0, delta=text)

    def done(self, status: Status) -> list[Json]:
        return [
            self._event("response.reasoning_text.done", content_index=0, text=self.text),
            self._event("response.content_part.done", content_index=0, part=self._part()),
            self._item_event("done", self.whole(status)),
        ]

    def whole(self, status: Status) -> Json:
        return self._with(status, [self._part()])

    def _part(self) -> Json:
        return {"type": "reasoning_text", "text": self.text}

    def _with(self, status: Status, content: list[Json]) -> Json:
        return {"id": self.id, "type": "reasoning", "status": status, "summary": [], "content": content}


class Call(_Item):
    """A call of a function."""

    def __init__(self, index: int, name: str) -> None:
        super().__init__("fc", index)
        self.name = name
        self.call_id = f"call_{secrets.token_hex(12)}"

    def added(self) -> list[Json]:
        return [self._item_event("added", self.whole("in_progress"))]

    def delta(self, text: str) -> Json:
        self.pieces.append(text)
        return self._event("response.function_call_arguments.delta", delta=text)

    def done(self, status: Status) -> list[Json]:
        return [
            self._event("response.function_call_arguments.done", name=self.name, arguments=self.text),
            self._item_event("done", self.whole(status)),
        ]

    def whole(self, status: Status) -> Json:
        return {
            "id": self.id,
            "type": "function_call",
            "status": status,
            "call_id": self.call_id,
            "name": self.name,
            "arguments": self.text,
        }


@dataclass(frozen=True, slots=True)
class TracedContent(Content):
    """Content, and the tokens that it came with."""

    tokens: tuple[Token, ...]


class TracingParser:
    """Hands tokens on one at a time: those of thinking and of calls are told from those of the text."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._held: list[Token] = []  # their text is not out yet

    @property
    def reasoning_tokens(self) -> int:
        return self._parser.reasoning_tokens

    def push(self, tokens: Sequence[Token]) -> list[Part]:
        parts: list[Part] = []
        for token in tokens:
            self._held.append(token)
            parts += self._traced(self._parser.push((token,)))
        return parts

    def finish(self) -> list[Part]:
        return self._traced(self._parser.finish())

    def _traced(self, parts: list[Part]) -> list[Part]:
        """The same parts; the tokens held belong to the first text among them."""
        traced: list[Part] = []
        for part in parts:
            tokens, self._held = tuple(self._held), []
            traced.append(TracedContent(part.text, tokens) if isinstance(part, Content) else part)
        return traced


def text_logprobs(tokens: Sequence[Token], tokenizer: Tokenizer) -> list[Json]:
    """One entry a token. This API knows no null for a token that has no bytes."""
    entries: Any = chat_logprobs(tokens, tokenizer)["content"]
    for entry in entries:
        for one in (entry, *entry["top_logprobs"]):
            one["bytes"] = one["bytes"] or []
    return list(entries)


class ResponseReply(EventReply):
    """Builds the response, whole and as events: the two cannot differ."""

    def __init__(self, body: ResponsesBody, plan: Plan, context: Context, keep: Callable[[Json], None]) -> None:
        """keep: takes the complete response, before its client does."""
        super().__init__(is_streamed=body.stream)
        head = response_head(body, plan.id, context.model)
        self._response: Json = {**head, "status": "in_progress", "output": [], "usage": None}
        self._tokenizer = context.model.tokenizer
        self._speed = context.speed
        self._keep = keep
        self._output: list[Json] = []
        self._open: OpenItem | None = None
        self._sequence = 0

    def _begin_events(self) -> list[Json]:
        return [self._lifecycle("created"), self._lifecycle("in_progress")]

    def _finish_events(self, finish: Finish) -> list[Json]:
        cut = finish.reason == "length"
        status: Status = "incomplete" if cut else "completed"
        # A call that is still open has been cut, by a stop string if not by length.
        events = self._close("incomplete" if isinstance(self._open, Call) else status)
        self._response |= {
            "status": status,
            "output": self._output,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "usage": _usage(finish),
            "timings": timings(finish.event, speed=self._speed),
        }
        if not cut:
            self._response["completed_at"] = int(time.time())
        self._keep(self._response)
        return [*events, self._lifecycle(status)]

    def _failure_events(self, error: WireError) -> list[Json]:
        begun = [] if self._open is None else [self._open.whole("incomplete")]
        told = {"code": "server_error", "message": error.message}
        self._response |= {"status": "failed", "error": told, "output": [*self._output, *begun]}
        return [self._lifecycle("failed")]

    def whole(self) -> Json:
        return self._response

    def _part_events(self, part: Part) -> list[Json]:
        match part:
            case Reasoning(text=text):
                return self._reason(text)
            case Content():
                return self._say(part)
            case CallBegin(name=name):
                return self._begin(lambda index: Call(index, name))
            case CallArguments(text=text):
                return [self._open.delta(text)] if isinstance(self._open, Call) and text else []
            case CallEnd():
                return self._close("completed")

    def _reason(self, text: str) -> list[Json]:
        if not text:
            return []
        events: list[Json] = []
        if not isinstance(self._open, Thought):
            events = self._begin(Thought)
        assert isinstance(self._open, Thought)
        return [*events, self._open.delta(text)]

    def _say(self, part: Content) -> list[Json]:
        tokens = part.tokens if isinstance(part, TracedContent) else ()
        if not part.text:
            return []
        events: list[Json] = []
        if not isinstance(self._open, TextMessage):
            events = self._begin(TextMessage)
        assert isinstance(self._open, TextMessage)
        return [*events, self._open.delta(part.text, text_logprobs(tokens, self._tokenizer))]

    def _begin(self, kind: Callable[[int], OpenItem]) -> list[Json]:
        events = self._close("completed")
        self._open = kind(len(self._output))
        return [*events, *self._open.added()]

    def _close(self, status: Status) -> list[Json]:
        """End the open item, if there is one."""
        item, self._open = self._open, None
        if item is None:
            return []
        self._output.append(item.whole(status))
        return item.done(status)

    def _lifecycle(self, kind: str) -> Json:
        return {"type": f"response.{kind}", "response": dict(self._response)}

    def _frames(self, events: Sequence[Json]) -> bytes:
        for event in events:
            event["sequence_number"] = self._sequence
            self._sequence += 1
        return super()._frames(events)


def _usage(finish: Finish) -> Json:
    event = finish.event
    return {
        "input_tokens": event.prompt_tokens,
        "input_tokens_details": {"cached_tokens": event.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": event.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": finish.reasoning_tokens},
        "total_tokens": event.prompt_tokens + event.completion_tokens,
    }
