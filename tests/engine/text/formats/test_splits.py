"""However an answer is cut into pieces, it says the same; and reading it takes time linear in its length."""

import itertools
import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.request import Token
from engine.text.formats import reader as reader_module
from engine.text.formats.parts import Tool
from tests.engine.text.formats.answers import FORMATS, calls_of, ended, make, parse, pieces_of, tokens_of
from tests.engine.text.formats.test_parser import TWO_CALLS, WEATHER

TOOLS = (WEATHER, Tool("note", {"type": "object", "properties": {"text": {"type": "string"}, "more": {}}}))
LOOKALIKES = [
    "<",
    "</",
    "<tool",
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "\n",
    "\n\n",
    " ",
    "<function=weather>",
    "<parameter=city>",
    "</parameter>",
    "\n</function>",
    '{"name": "weather"',
    '{"name": "no"}',
    "<|python_tag|>",
    "\uff5cDSML\uff5c",
    "<\uff5cDSML\uff5ctool_calls>",
    "```json",
    ";",
    '"',
    "\\",
    "\U0001f9d1\u200d\U0001f680",
    "\u8d75\u00e9",
]
texts = st.lists(st.sampled_from(LOOKALIKES) | st.text(max_size=4), max_size=8).map("".join)


@st.composite
def answers(draw: st.DrawFn, name: str) -> str:
    """Thinking, text and calls, some of them broken."""
    pieces = []
    for kind in draw(st.lists(st.sampled_from(["text", "think", "call", "broken"]), max_size=4)):
        text = draw(texts)
        if kind == "text":
            pieces.append(text)
        elif kind == "think":
            pieces.append(f"<think>{text}</think>")
        else:
            call = TWO_CALLS[name].replace("Oslo", draw(texts) if kind == "broken" else json.dumps(text)[1:-1])
            pieces.append(call[: draw(st.integers(1, len(call)))] if kind == "broken" else call)
    return "".join(pieces)


@pytest.mark.parametrize("marked", [True, False], ids=["marks", "text"])
@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_every_split_gives_the_same_parts(name: str, marked: bool, data: st.DataObject) -> None:
    form, tokenizer = make(name, marked=marked)
    inside = data.draw(st.booleans())
    tools = data.draw(st.sampled_from([TOOLS, TOOLS[:1], ()]))
    tokens = tokens_of(data.draw(answers(name)), form, tokenizer)
    one_by_one = parse(form.parser(inside_thinking=inside, tools=tools), [[token] for token in tokens])
    at_once = parse(form.parser(inside_thinking=inside, tools=tools), pieces_of(tokens, itertools.repeat(1)))
    assert at_once == one_by_one
    cuts = itertools.cycle(data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=20)))
    assert parse(form.parser(inside_thinking=inside, tools=tools), pieces_of(tokens, cuts)) == one_by_one
    assert parse(form.parser(inside_thinking=inside, tools=tools), [tokens]) == one_by_one
    if not tools:
        assert calls_of(one_by_one) == []
    assert ended(one_by_one) <= len(calls_of(one_by_one))


@pytest.mark.parametrize("name", FORMATS)
def test_an_example_split_in_every_two_pieces_is_the_same(name: str) -> None:
    form, _ = make(name, marked=False)
    text = f"<think>Hm.\n</think>\n\nYes.\n{TWO_CALLS[name]}\nDone."
    whole = parse(form.parser(inside_thinking=False, tools=[WEATHER]), [[Token(0, text)]])
    for cut in range(1, len(text)):
        pieces = [[Token(0, text[:cut]), Token(0, text[cut:])]]
        assert parse(form.parser(inside_thinking=False, tools=[WEATHER]), pieces) == whole


WORST = {
    "one tag's beginning": lambda tag, size: tag[:-1] * (size // len(tag)),
    "tags and nothing in them": lambda tag, size: tag * (size // len(tag)),
    "a call that never ends": lambda tag, size: "{" * size,
    "white space": lambda tag, size: " \n" * (size // 2),
    "names": lambda tag, size: "a" * size,
    "quotes": lambda tag, size: '\\"' * (size // 2),
}


class Counter:
    """Counts the characters that the reader looks at, and the lines of Python that run in the formats."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        search = reader_module.Tags.search
        feed = reader_module.Reader.feed

        def counted_search(tags: reader_module.Tags, text: str, start: int) -> Any:
            self.count += len(text) - start
            return search(tags, text, start)

        def counted_feed(reader: reader_module.Reader, text: str) -> None:
            feed(reader, text)
            self.count += len(reader._text)

        monkeypatch.setattr(reader_module.Tags, "search", counted_search)
        monkeypatch.setattr(reader_module.Reader, "feed", counted_feed)

    def trace(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        self.count += event == "line"
        return self.trace


@pytest.mark.parametrize("kind", WORST)
@pytest.mark.parametrize("name", FORMATS)
def test_the_work_grows_no_faster_than_the_answer(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form, _ = make(name, marked=False)
    start = TWO_CALLS[name].partition("Oslo")[0]
    opening = FORMATS[name].openings[0]
    counter = Counter(monkeypatch)

    def work(text: str, width: int) -> int:
        parser = form.parser(inside_thinking=False, tools=[WEATHER])
        counter.count = 0
        previous = sys.gettrace()
        sys.settrace(counter.trace)
        try:
            parser.push([Token(0, text[at : at + width]) for at in range(0, len(text), width)])
            parser.finish()
        finally:
            sys.settrace(previous)
        return counter.count

    for before, tag in ("", opening), (start, "</parameter>"), (opening, opening):
        for width in (1, 30):
            small = work(before + WORST[kind](tag, 100), width) - work(before, width)
            large = work(before + WORST[kind](tag, 400), width) - work(before, width)
            assert large <= 5 * small + 300
