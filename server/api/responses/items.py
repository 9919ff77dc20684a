"""The items of a response's output while they are written: what each event says of them."""

import secrets
from collections.abc import Sequence
from typing import Literal, Protocol

from server.generate.answer import Json

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
