"""Whatever tokens a model draws within its grammar, a finished answer is what the request asked for."""

import json
import random
import re
from collections.abc import Sequence

import jsonschema  # type: ignore[import-untyped]
import numpy as np
import pytest

from engine.api.request import Token
from engine.errors import RequestError
from engine.text.constraints.compiler import ConstraintCompiler
from engine.text.formats.answer_format import AnswerFormat, ToolGrammar
from engine.text.formats.parts import Content, Reasoning, TextInput, Tool, ToolChoice
from engine.text.tokenizer import Tokenizer
from tests.engine.text.formats.answers import FORMATS, calls_of, ended, make, parse

END = 257
WRITE = Tool(
    "write",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "maxLength": 6},
            "text": {"type": "string"},
            "mode": {"enum": ["a", 'b"\\\n</tool_call>\u00e9', 3, None]},
            "tag": {"type": "string", "pattern": "^[a-c]{1,3}$"},
            "size": {"type": "integer", "minimum": 2, "maximum": 40},
            "note": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/point"}, {"type": "boolean"}]},
            "at": {"$ref": "#/$defs/point"},
            "list": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
        },
        "required": ["path", "size", "text", "mode"],
        "additionalProperties": False,
        "$defs": {
            "point": {
                "type": "object",
                "properties": {"x": {"type": "number"}},
                "required": ["x"],
                "additionalProperties": False,
            }
        },
    },
)
STOP = Tool("stop", {"type": "object", "properties": {}, "additionalProperties": False})
TOOLS = (WRITE, STOP)
PHRASES = ["<", ">", '"', "\n", "}", "{", "1", "x", "</parameter>", "\n</function>", "null", "[", "]", "\u00e9"]


def tags(form: AnswerFormat) -> list[str]:
    """What the model is nudged to write: the format's own tags, right or wrong."""
    known = FORMATS[form.tools.name] if form.tools else None
    texts: list[str] = ["</think>", "<think>"]
    for value in [getattr(known, name) for name in getattr(known, "__dataclass_fields__", {})]:
        texts += [each for each in (value if isinstance(value, tuple) else [value]) if isinstance(each, str) and each]
    return texts


class Model:
    """Draws at random within the mask, often a letter of a tag, so that answers do end."""

    def __init__(self, form: AnswerFormat, tokenizer: Tokenizer, grammar: str, seed: int) -> None:
        self._random = random.Random(seed)
        self._tokenizer = tokenizer
        self._matcher = compiler(form, tokenizer).compile(grammar, param="tools").start()
        self._phrases = [*PHRASES, *tags(form)]
        self._openings = FORMATS[form.tools.name].openings[:1] if form.tools else ("x",)
        self._marks = form.marks
        self._typing: list[int] = []

    def answer(self, limit: int) -> tuple[list[Token], bool]:
        """Its tokens, and whether it came to an end."""
        tokens: list[Token] = []
        undecoded = b""
        for step in range(limit):
            token = self._draw(step / limit)
            if token == END:
                return tokens, True
            self._matcher.accept(token)
            if token in self._marks:
                assert not undecoded
                tokens.append(Token(token, self._tokenizer.token_text(token), is_mark=True))
                continue
            undecoded += self._tokenizer.token_bytes(token)
            try:
                text, undecoded = undecoded.decode(), b""
            except UnicodeDecodeError:
                text = ""
            tokens.append(Token(token, text))
        return tokens, False

    def _draw(self, progress: float) -> int:
        allowed = np.flatnonzero(np.unpackbits(self._matcher.mask().view(np.uint8), bitorder="little"))
        assert len(allowed), "the grammar has led into a dead end"
        if END in allowed and (len(allowed) == 1 or self._random.random() < progress / 3):
            return END
        if not self._typing and self._random.random() < 0.7:
            phrase = self._random.choice(self._openings if self._random.random() < 0.25 else self._phrases)
            self._typing = self._tokenizer.encode(phrase, parse_special=True)
        if self._typing:
            token = self._typing.pop(0)
            if token in allowed and token != END:
                return token
            self._typing = []
        return int(self._random.choice(allowed))


_compilers: dict[int, ConstraintCompiler] = {}


def compiler(form: AnswerFormat, tokenizer: Tokenizer) -> ConstraintCompiler:
    return _compilers.setdefault(id(form), ConstraintCompiler(tokenizer, form.marks))


def check_calls(calls: Sequence[tuple[str, str]], allowed: Sequence[str]) -> None:
    schemas = {tool.name: tool.parameters for tool in TOOLS}
    for name, arguments in calls:
        assert name in allowed
        jsonschema.validate(json.loads(arguments), schemas[name])


@pytest.mark.parametrize("marked", [True, False], ids=["marks", "text"])
@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize("name", FORMATS)
def test_calls_drawn_at_random_are_valid(name: str, mode: str, marked: bool) -> None:
    form, tokenizer = make(name, marked=marked)
    finished = called = 0
    for seed in range(6):
        inside, parallel = seed % 2 == 0, seed % 3 > 0
        allowed = ("stop", "write") if seed % 4 else ("write",)
        choice = ToolChoice("auto" if mode == "auto" else "required", allowed)
        grammar = form.tool_grammar(TOOLS, choice, parallel=parallel, inside_thinking=inside)
        assert grammar is not None
        tokens, complete = Model(form, tokenizer, grammar.text, seed).answer(2000)
        parts = parse(form.parser(inside_thinking=inside, tools=TOOLS), [tokens])
        calls = calls_of(parts)
        check_calls(calls[: ended(parts)], allowed)
        if complete:
            finished += 1
            called += len(calls)
            assert ended(parts) == len(calls)
            assert parallel or len(calls) <= 1
            if mode == "required":
                assert calls
                assert not [part for part in parts if isinstance(part, Content)]
    assert finished or called


ONE_TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
TEXT_FORMS = {
    "lark": (TextInput("lark", 'start: ("+" /[a"<\\t]{1,9}/ LF){1,4}\n%import common.LF'), r'(\+[a"<\t]{1,9}\n){1,4}'),
    "regex": (TextInput("regex", r'[a-c"\n]{2,5}x|\\1'), r'[a-c"\n]{2,5}x|\\1'),
}


@pytest.mark.parametrize("marked", [True, False], ids=["marks", "text"])
@pytest.mark.parametrize("syntax", TEXT_FORMS)
@pytest.mark.parametrize("name", FORMATS)
def test_the_one_text_of_a_tool_matches_its_grammar(name: str, syntax: str, marked: bool) -> None:
    text_form, pattern = TEXT_FORMS[syntax]
    tool = Tool("edit", ONE_TEXT, text=text_form)
    form, tokenizer = make(name, marked=marked)
    grammar = form.tool_grammar([tool], ToolChoice("required", ("edit",)), parallel=False, inside_thinking=False)
    assert grammar is not None and not grammar.freed
    texts = []
    for seed in range(6):
        tokens, complete = Model(form, tokenizer, grammar.text, seed).answer(600)
        parts = parse(form.parser(inside_thinking=False, tools=[tool]), [tokens])
        if complete:
            texts += [text for _, text in calls_of(parts)]
    assert texts and all(re.fullmatch(pattern, text) for text in texts), texts


def test_a_grammar_that_json_cannot_hold_leaves_the_text_free_and_is_named() -> None:
    tool = Tool(
        "edit", ONE_TEXT, text=TextInput("lark", 'start: %json {"type": "object"}'), schema_path="tools[0].format"
    )
    form, _ = make("hermes", marked=True)
    grammar = form.tool_grammar([tool], ToolChoice("auto", ("edit",)), parallel=True, inside_thinking=False)
    assert grammar is not None and grammar.freed == ("tools[0].format",)


@pytest.mark.parametrize("marked", [True, False], ids=["marks", "text"])
@pytest.mark.parametrize("name", FORMATS)
def test_no_call_can_begin_where_none_may(name: str, marked: bool) -> None:
    form, tokenizer = make(name, marked=marked)
    for seed in range(4):
        inside = seed % 2 == 0
        choice = ToolChoice("none", ("stop", "write"))
        grammar = form.tool_grammar(TOOLS, choice, parallel=True, inside_thinking=inside)
        assert grammar is not None
        tokens, _ = Model(form, tokenizer, grammar.text, seed).answer(300)
        parts = parse(form.parser(inside_thinking=inside, tools=TOOLS), [tokens])
        assert all(isinstance(part, Content | Reasoning) for part in parts)


@pytest.mark.parametrize("marked", [True, False], ids=["marks", "text"])
@pytest.mark.parametrize("inside", [True, False])
def test_a_rule_holds_strictly_after_free_thinking(inside: bool, marked: bool) -> None:
    form, tokenizer = make("hermes", marked=marked)
    grammar = form.answer_grammar("/[ab]{3}/", inside_thinking=inside)
    thoughts = finished = 0
    for seed in range(20):
        tokens, complete = Model(form, tokenizer, grammar, seed).answer(400)
        parts = parse(form.parser(inside_thinking=inside, tools=()), [tokens])
        said = "".join(part.text for part in parts if isinstance(part, Content))
        thoughts += any(isinstance(part, Reasoning) for part in parts)
        finished += complete
        if complete:
            assert len(said) == 3
            assert set(said) <= {"a", "b"}
    assert thoughts
    assert finished >= 5


def test_without_thinking_tags_the_rule_begins_at_once() -> None:
    form, tokenizer = make("hermes", thinking=None)
    tokens, complete = Model(form, tokenizer, form.answer_grammar('"yes"', inside_thinking=False), 0).answer(9)
    assert complete
    assert "".join(token.text for token in tokens) == "yes"


def accepts(form: AnswerFormat, tokenizer: Tokenizer, grammar: ToolGrammar | None, text: str) -> bool:
    """Whether the grammar allows all of the text."""
    assert grammar is not None
    matcher = compiler(form, tokenizer).compile(grammar.text, param="tools").start()
    for token in tokenizer.encode(text, parse_special=True):
        if not matcher.mask()[token // 32] >> token % 32 & 1:
            return False
        matcher.accept(token)
    return True


def test_thinking_may_end_with_a_call_only_at_the_beginning_of_a_line() -> None:
    form, tokenizer = make("qwen_xml")
    grammar = form.tool_grammar(TOOLS, ToolChoice("auto", ("stop",)), parallel=True, inside_thinking=True)
    call = "<tool_call>\n<function=stop>\n</function>\n</tool_call>"
    assert accepts(form, tokenizer, grammar, f"Hm.\n{call}\n{call}")
    assert accepts(form, tokenizer, grammar, f"Hm.</think>\n\nSo: {call}")
    assert not accepts(form, tokenizer, grammar, f"Hm. {call}")


def test_the_examples_of_the_templates_are_allowed() -> None:
    for name, call in {
        "hermes": '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>',
        "llama3": '{"name": "stop", "parameters": {}}',
        "qwen_xml": "<tool_call>\n<function=stop>\n</function>\n</tool_call>",
    }.items():
        form, tokenizer = make(name)
        for mode in (ToolChoice("auto", ("stop",)), ToolChoice("required", ("stop",))):
            grammar = form.tool_grammar(TOOLS, mode, parallel=False, inside_thinking=False)
            assert accepts(form, tokenizer, grammar, call)
            assert not accepts(form, tokenizer, grammar, call + "\n" + call)
            assert not accepts(form, tokenizer, grammar, call.replace("stop", "write"))
            assert not accepts(form, tokenizer, grammar, call.replace("stop", "stopp"))


def test_a_llama_may_answer_with_json_that_is_no_call() -> None:
    form, tokenizer = make("llama3")
    grammar = form.tool_grammar(TOOLS, ToolChoice("auto", ("stop",)), parallel=True, inside_thinking=False)
    assert accepts(form, tokenizer, grammar, '{"city": "Rome"}')
    assert not accepts(form, tokenizer, grammar, '{"name": "Rome"}')


def test_what_a_strict_tool_cannot_enforce_is_refused_by_name() -> None:
    form, _ = make("qwen_xml")
    choice = ToolChoice("auto", ("f",))
    tool = Tool("f", {"type": "object", "properties": {"a": {"type": "string", "pattern": "^a|b$"}}})
    assert form.tool_grammar([tool], choice, parallel=True, inside_thinking=False)
    strict = Tool(tool.name, tool.parameters, strict=True, schema_path="tools[1].function.parameters")
    with pytest.raises(RequestError) as refusal:
        form.tool_grammar([STOP, strict], choice, parallel=True, inside_thinking=False)
    assert refusal.value.param == "tools[1].function.parameters.properties.a.pattern"
    whole = Tool("f", {"type": "object", "minProperties": 1}, strict=True, schema_path="tools[0].function.parameters")
    with pytest.raises(RequestError) as refusal:
        form.tool_grammar([whole], choice, parallel=True, inside_thinking=False)
    assert refusal.value.param == "tools[0].function.parameters.minProperties"
