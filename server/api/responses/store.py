"""Responses that can be gone back to: in memory, each caller's own, the least recently used forgotten first."""

from collections import OrderedDict
from dataclasses import dataclass

import orjson

from server.errors import UnknownResponseError
from server.generate.answer import Json

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

    Where there is no room, the caller that holds the most loses its oldest; of several that hold the most, the one
    that was here longest ago. So nobody loses what lies within an equal share, and who is alone may use all.
    """

    def __init__(self, max_count: int = MAX_COUNT, max_bytes: int = MAX_BYTES) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._shelves: OrderedDict[str, Shelf] = OrderedDict()  # by caller, who was here last at the end; none is empty

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
