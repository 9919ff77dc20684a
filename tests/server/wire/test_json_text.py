"""No line ends within JSON, by the rules of any reader."""

import json

import pytest

from server.wire.json_text import answer_of, encoded, json_answer

ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


@pytest.mark.parametrize("character", ENDS)
def test_every_end_of_a_line_is_an_escape(character: str) -> None:
    value = {"a" + character: [character, f"é{character * 2}ß"]}
    for told in (
        encoded(value),
        json_answer(value).body,
        answer_of(json.dumps(value, ensure_ascii=False).encode()).body,
    ):
        text = bytes(told).decode()
        assert len(text.splitlines()) == 1
        assert json.loads(text) == value


@pytest.mark.parametrize("text", ["a", "é", "\u2027\u202a\u0084\u0086", "\\u2028", "\u2019\u2013\u2026", "\U0001f600"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert encoded(text) == json.dumps(text, ensure_ascii=False).encode()
