"""Which tokens of a chat's prompt are which message's, found by rendering the chat again with marks in it."""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from engine.text.tokenizer import Tokenizer

MARK = "\U0010fffb"  # a private character, which no template trims and no message holds but by malice
MARKS = re.compile(f"{MARK}([0-9]{{1,5}}){MARK}")
# Templates trim and tokenizers move white space: places are counted without it.
WHITE = b" \t\n\v\f\r"

Spans = tuple[range, ...]  # of each message, the places of its tokens; empty where they are not known


def marked_messages(messages: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """The same chat with the strings of each message between marks that carry its index."""
    return [_marked_message(message, f"{MARK}{index}{MARK}") for index, message in enumerate(messages)]


def message_spans(marked: str, text: str, tokens: Sequence[int], tokenizer: Tokenizer) -> Spans:
    """`marked` and `text` are the same chat rendered with marks and without, `tokens` what `text` became."""
    solid = _solid(text)
    ends = list(accumulate(len(_solid_token(token, tokenizer)) for token in tokens))
    # BOS, where the tokenizer has put it before a text without one.
    extra = ends[0] if ends and tokens[0] == tokenizer.bos_id and ends[-1] > len(solid) else 0
    if not ends or ends[-1] - extra != len(solid) or MARK in text:
        return ()
    return tuple(_tokens_of(span, [end - extra for end in ends]) for span in _byte_spans(marked, solid))


def message_of(token: int, spans: Spans) -> int | None:
    """The index of the message that the token lies in; None where it is the template's own, or not known."""
    return next((index for index, span in enumerate(spans) if token in span), None)


def _marked_message(message: Mapping[str, object], mark: str) -> dict[str, object]:
    texts = {key: message[key] for key in ("content", "reasoning_content", "reasoning") if key in message}
    marked = {**message, **{key: _marked(text, mark) for key, text in texts.items()}}
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        marked["tool_calls"] = [{**call, "function": _marked_call(call["function"], mark)} for call in calls]
    return marked


def _marked_call(function: Mapping[str, object], mark: str) -> dict[str, object]:
    return {"name": _marked(function["name"], mark), "arguments": _marked(_parsed(function["arguments"]), mark)}


def _parsed(arguments: object) -> object:
    """The object that a call's arguments are: marks belong inside its strings."""
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return arguments


def _marked(value: object, mark: str) -> object:
    """An empty string stays empty: templates ask whether there is one."""
    match value:
        case str():
            return f"{mark}{value}{mark}" if value else value
        case dict():
            return {key: _marked(each, mark) for key, each in value.items()}
        case list():
            return [_marked(each, mark) for each in value]
        case _:
            return value


def _byte_spans(marked: str, solid: bytes) -> list[tuple[int, int]]:
    """From each message's first mark to its last, as far as the marks have not changed what the template wrote."""
    plain, *rest = MARKS.split(marked)
    written = bytearray(_solid(plain))
    places: dict[int, list[int]] = {}
    for index, text in zip(rest[::2], rest[1::2], strict=True):
        places.setdefault(int(index), []).append(len(written))
        written += _solid(text)
    reliable = next(
        (place for place, (one, other) in enumerate(zip(written, solid, strict=False)) if one != other), len(solid)
    )
    spans = {index: (found[0], found[-1]) for index, found in places.items() if found[-1] <= reliable}
    return [spans.get(index, (0, 0)) for index in range(max(places, default=-1) + 1)]


def _tokens_of(span: tuple[int, int], ends: list[int]) -> range:
    """The tokens that hold some of these bytes; `ends` are the places after each token."""
    start, end = span
    return range(bisect_right(ends, start), bisect_left(ends, end) + 1) if start < end else range(0)


def _solid(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").translate(None, WHITE)


def _solid_token(token: int, tokenizer: Tokenizer) -> bytes:
    """Control tokens write nothing: they stand in the text by their names."""
    written = tokenizer.token_bytes(token) or tokenizer.token_text(token).encode("utf-8", "surrogatepass")
    return written.translate(None, WHITE)
