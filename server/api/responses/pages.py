"""Lists that are read a page at a time, as this API cuts them."""

from collections.abc import Mapping

from engine.errors import RequestError
from server.errors import clip
from server.generate.answer import Json

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
