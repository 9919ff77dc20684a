"""Responses that can be gone back to: in memory, each caller's own, the least recently used forgotten first."""

from collections import OrderedDict
from dataclasses import dataclass

import orjson

from server.chat_form import Json
from server.errors import UnknownResponseError

MAX_COUNT = 1024
MAX_BYTES = 64 * 1024 * 1024

Key = tuple[str, str]  # (caller, id of the response)


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


class ResponseStore:
    """Bounded by count and bytes. Belongs to the event loop's thread."""

    def __init__(self, max_count: int = MAX_COUNT, max_bytes: int = MAX_BYTES) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._kept: OrderedDict[Key, StoredResponse] = OrderedDict()
        self._nbytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def put(self, caller: str, response: Json, input_items: list[Json]) -> None:
        stored = StoredResponse(orjson.dumps(response), orjson.dumps(input_items))
        self._kept[caller, str(response["id"])] = stored
        self._nbytes += stored.nbytes
        while len(self._kept) > self._max_count or self._nbytes > self._max_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._nbytes -= oldest.nbytes

    def get(self, caller: str, name: str) -> StoredResponse:
        """The caller's response of this id; raises UnknownResponseError."""
        stored = self._kept.get((caller, name))
        if stored is None:
            raise UnknownResponseError(name)
        self._kept.move_to_end((caller, name))
        return stored

    def delete(self, caller: str, name: str) -> None:
        self._nbytes -= self.get(caller, name).nbytes
        del self._kept[caller, name]
