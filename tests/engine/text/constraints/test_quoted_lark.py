"""A text matches a grammar just where its JSON matches the quoted grammar."""

import json

import pytest
from llguidance import LLMatcher, LLTokenizer

from engine.text.constraints.quoted_lark import UnquotableGrammarError, quoted_lark

_BYTES = LLTokenizer("byte")
PATCH = r"""start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

%import common.LF
"""
PATCHES = [
    '*** Begin Patch\n*** Add File: a.py\n+x = "a\\n"\n+\ty\n+\n*** End Patch\n',
    "*** Begin Patch\n*** Delete File: b\n*** End Patch",
    "*** Begin Patch\n*** End Patch",
]
TEXTS = [
    "",
    "a",
    '"',
    "\\",
    "\n",
    "a\tb",
    'A"b',
    "x/y",
    'é"',
    "]",
    "a]",
    "abc",
    "aBc",
    "1,22",
    ' "a\\"b" ',
    "\x7f",
    "ab\r\nc",
]
TEXTS += ['"ab"', '"a' + chr(92) + '"b"', "(a)", "((a\n))", "x=1", "_a", "k"]
GRAMMARS = {
    "patch": PATCH,
    "without": "start: /[^a-c]+/",
    "all": "start: /(?s:.)+/",
    "line": "start: /.+/",
    "flag": "start: /.+/s",
    "case": 'start: "A\\"b"i',
    "range": 'start: "a".."z"',
    "bracket": r"start: /[\]a]+/",
    "classes": r"start: /\s*\w+,\d{1,2}/",
    "import": "%import common.ESCAPED_STRING\n%import common.WS\nstart: ESCAPED_STRING\n%ignore WS",
    "group": r'start: /\w+(?i:B)c"?/',
    "escapes": r"start: /a\tb|x\/y|\x7f|[\x00-\x20]/",
    "comment": 'start: a*\na: "a" | "b" | /[\\r\\n]/ | "c" // "x"',
    "names": '%import common (LETTER, LF)\nstart: LETTER+ "\\t" LETTER+',
    "nested": "start: /[[:alpha:]&&[^b]]+/",
    "recursion": 'start: "(" start ")" | "a" "\\n"?',
    "optional": '?start: _name ["=" /[0-9]/]\n_name: /[_a-x]+/',
}


def accepts(grammar: str, text: str) -> bool:
    """Whether the whole text matches."""
    matcher = LLMatcher(_BYTES, grammar)
    tokens = list(text.encode())
    return matcher.validate_tokens(tokens) == len(tokens) and matcher.consume_tokens(tokens) and matcher.is_accepting()


@pytest.mark.parametrize("name", GRAMMARS)
def test_the_same_texts_match_with_jsons_escapes(name: str) -> None:
    grammar = GRAMMARS[name]
    quoted = quoted_lark(grammar)
    assert not LLMatcher.validate_grammar(quoted), quoted
    found = {
        text: (accepts(grammar, text), accepts(quoted, json.dumps(text, ensure_ascii=False)[1:-1]))
        for text in [*TEXTS, *PATCHES]
    }
    assert all(plain == in_json for plain, in_json in found.values()), (found, quoted)
    assert any(plain for plain, _ in found.values()) and not all(plain for plain, _ in found.values())


def test_no_quote_ends_the_text() -> None:
    quoted = quoted_lark("start: /(?s:.)*/")
    assert accepts(quoted, 'say \\"x\\"') and not accepts(quoted, 'say "x"') and not accepts(quoted, "a\nb")


@pytest.mark.parametrize(
    "source", ['start: %json {"type": "object"}', "start: <|end|>", "start: <[7]>", "start: /a b/x"]
)
def test_what_has_no_meaning_within_json_is_told(source: str) -> None:
    with pytest.raises(UnquotableGrammarError):
        quoted_lark(source)
