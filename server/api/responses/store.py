"""Responses that can be gone back to: what each says of its request, its items, and the store of them.

The store is in memory: each caller's own, the least recently used forgotten first. Lists of items are read a page at a
time.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import orjson

from engine.errors import RequestError
from server.api.responses.body import (
    AnyItem,
    FunctionCall,
    FunctionCallOutput,
    MessageItem,
    PlainChoice,
    ReasoningItem,
    Refusal,
    ResponsesBody,
)
from server.api.responses.body import ContentPart as Part
from server.errors import UnknownResponseError, clip
from server.generate.answer import Json
from server.generate.chat_form import given
from server.served import ServedModel


def response_head(body: ResponsesBody, response_id: str, model: ServedModel) -> Json:
    """The fields of a response that are known before its answer."""
    sampling = replace(model.sampling, **body.stated_sampling)
    return {
        "id": response_id,
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata,
        "model": model.id,
        "parallel_tool_calls": body.parallel_tool_calls,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": body.reasoning.effort, "summary": None},
        "store": body.store,
        "temperature": sampling.temperature,
        "text": {"format": given(**body.text.format.model_dump(by_alias=True))},
        "tool_choice": _choice(body),
        "tools": [_tool(tool.model_dump()) for tool in body.tools],
        "top_logprobs": body.top_logprobs,
        "top_p": sampling.top_p,
        "truncation": "disabled",
    }


def _choice(body: ResponsesBody) -> object:
    choice = body.tool_choice
    return choice.type if isinstance(choice, PlainChoice) else choice.model_dump()


def _tool(tool: Json) -> Json:
    return {**tool, "strict": bool(tool["strict"])}


def kept_items(items: Sequence[AnyItem]) -> list[Json]:
    """The items as GET /v1/responses/{id}/input_items lists them."""
    return [_kept(item) for item in items]


def _kept(item: AnyItem) -> Json:
    own: Json
    match item:
        case MessageItem():
            own = {"role": item.role, "content": [_part(part, item.role == "assistant") for part in item.content]}
            prefix = "msg"
        case FunctionCall():
            own = {"call_id": item.call_id, "name": item.name, "arguments": item.arguments}
            prefix = "fc"
        case FunctionCallOutput():
            own = {"call_id": item.call_id, "output": [_part(part, False) for part in item.output]}
            prefix = "fco"
        case ReasoningItem():
            own = {
                "summary": [part.model_dump() for part in item.summary],
                "content": [part.model_dump() for part in item.content],
            }
            prefix = "rs"
    name = item.id or f"{prefix}_{secrets.token_hex(16)}"
    return {"id": name, "type": item.type, "status": item.status or "completed", **own}


def _part(part: Part, is_answer: bool) -> Json:
    if not is_answer:
        return {"type": "input_text", "text": part.text}
    if isinstance(part, Refusal):
        return {"type": "refusal", "refusal": part.refusal}
    return {"type": "output_text", "text": part.text, "annotations": [], "logprobs": []}


MAX_COUNT = 1024
MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One response, and all items that it was an answer to; as JSON, so that its size is known."""

    response: bytes
    input_items: bytes

    @property
    def nbytes(self) -> int:
        return len(self.response) + len(self.input_items)

    @property
    def items(self) -> list[Json]:
        items: list[Json] = orjson.loads(self.input_items)
        return items

    @property
    def conversation(self) -> list[Json]:
        """The items that the next answer follows."""
        output: list[Json] = orjson.loads(self.response)["output"]
        return self.items + output


class Shelf:
    """The responses of one caller."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._kept: OrderedDict[str, StoredResponse] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, name: str, stored: StoredResponse) -> None:
        self._kept[name] = stored
        self.nbytes += stored.nbytes

    def get(self, name: str) -> StoredResponse:
        """Raises UnknownResponseError."""
        if name not in self._kept:
            raise UnknownResponseError(name)
        self._kept.move_to_end(name)
        return self._kept[name]

    def delete(self, name: str) -> None:
        """Raises UnknownResponseError."""
        self.nbytes -= self.get(name).nbytes
        del self._kept[name]

    def drop_oldest(self) -> None:
        """Forget the least recently used."""
        self.delete(next(iter(self._kept)))


class ResponseStore:
    """Bounded by count and bytes. Belongs to the event loop's thread.

    Where there is no room, the caller that holds the most loses its oldest response. Of several such callers, the one
    that was here longest ago loses. So each caller keeps an equal share, and a single caller may use all.
    """

    def __init__(self, max_count: int = MAX_COUNT, max_bytes: int = MAX_BYTES) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._shelves: OrderedDict[str, Shelf] = OrderedDict()  # by caller, the latest caller last; none is empty

    def __len__(self) -> int:
        return sum(map(len, self._shelves.values()))

    @property
    def nbytes(self) -> int:
        return sum(shelf.nbytes for shelf in self._shelves.values())

    def put(self, caller: str, response: Json, input_items: list[Json]) -> None:
        stored = StoredResponse(orjson.dumps(response), orjson.dumps(input_items))
        self._shelves.setdefault(caller, Shelf()).put(str(response["id"]), stored)
        self._shelves.move_to_end(caller)
        while len(self) > self._max_count:
            self._drop_oldest(max(self._shelves, key=lambda one: len(self._shelves[one])))
        while self.nbytes > self._max_bytes:
            self._drop_oldest(max(self._shelves, key=lambda one: self._shelves[one].nbytes))

    def get(self, caller: str, name: str) -> StoredResponse:
        """The caller's response of this id; raises UnknownResponseError."""
        return self._shelf(caller, name).get(name)

    def delete(self, caller: str, name: str) -> None:
        """Forget a response; raises UnknownResponseError."""
        self._shelf(caller, name).delete(name)
        self._tidy(caller)

    def _shelf(self, caller: str, name: str) -> Shelf:
        if caller not in self._shelves:
            raise UnknownResponseError(name)
        self._shelves.move_to_end(caller)
        return self._shelves[caller]

    def _drop_oldest(self, caller: str) -> None:
        self._shelves[caller].drop_oldest()
        self._tidy(caller)

    def _tidy(self, caller: str) -> None:
        if not self._shelves[caller]:
            del self._shelves[caller]


DEFAULT_LIMIT, MAX_LIMIT = 20, 100


def page_of(items: list[Json], query: Mapping[str, str]) -> Json:
    """The page that the query asks for: `order` (newest first by default), `limit`, and `after` an item's id."""
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise RequestError(f"order: must be 'asc' or 'desc' (got '{clip(order)}').", param="order")
    ordered = items if order == "asc" else items[::-1]
    start, limit = _start(ordered, query.get("after")), _limit(query.get("limit"))
    page = ordered[start : start + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else "",
        "last_id": page[-1]["id"] if page else "",
        "has_more": start + limit < len(ordered),
    }


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= MAX_LIMIT):
        raise RequestError(f"limit: must be a number from 1 to {MAX_LIMIT} (got '{clip(text)}').", param="limit")
    return int(text)


def _start(ordered: list[Json], after: str | None) -> int:
    if after is None:
        return 0
    for place, item in enumerate(ordered):
        if item["id"] == after:
            return place + 1
    raise RequestError(f"after: there is no item '{clip(after)}' in this list.", param="after")
