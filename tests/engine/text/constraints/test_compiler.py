"""From grammar text to masks over a vocabulary, and what is refused on the way."""

import threading
import time

import numpy as np
import pytest

from engine.errors import RequestError
from engine.text.constraints import compiler as compiler_module
from engine.text.constraints.compiler import ConstraintCompiler
from engine.text.constraints.rules import json_object_rule
from engine.text.tokenizer import Tokenizer
from tests.engine.text import vocabularies
from tests.engine.text.constraints.random_answers import allowed
from tests.engine.text.constraints.tokenizers import compiler, constraint, led, matches, may_end, spelled, tiny, token
from tests.engine.text.vocabularies import tiny_bpe_metadata

ANY_OBJECT = json_object_rule()


def test_a_mask_allows_every_token_that_goes_on_and_no_other() -> None:
    mask = allowed(constraint('"hello"').start())
    assert {tiny().token_text(int(i)) for i in np.flatnonzero(mask)} == {"h", "he", "hell", "hello"}


def test_a_mask_has_one_bit_a_token_in_whole_words() -> None:
    mask = constraint("/.*/").start().mask()
    assert mask.dtype == np.int32 and mask.shape == (-(-tiny().vocab_size // 32),)
    assert not allowed(constraint("/.*/").start())[tiny().vocab_size :].any()


def test_end_tokens_are_allowed_exactly_where_the_answer_may_end() -> None:
    matcher = constraint('"ab" "c"?').start()
    ends = []
    for following in spelled("abc"):
        ends.append(may_end(matcher))
        matcher.accept(following)
    assert [*ends, may_end(matcher)] == [False, False, True, True]
    assert allowed(matcher).sum() == len(tiny().end_ids)


def test_all_end_tokens_of_a_model_end_an_answer() -> None:
    tokenizer = vocabularies.tokenizer("smollm")
    assert len(tokenizer.end_ids) > 1
    for end in tokenizer.end_ids:
        matcher = compiler("smollm").compile('start: "a"?', param="p").start()
        assert allowed(matcher)[end]
        matcher.accept(end)


def test_an_end_token_in_the_middle_of_a_grammar_is_never_allowed() -> None:
    """It would end the answer before it is whole."""
    matcher = constraint('"a" (<|im_end|> "b" | "c")').start()
    assert led(matcher, spelled("a"))
    assert set(np.flatnonzero(allowed(matcher))) == {token("c")}


def test_complete_is_where_only_an_end_token_may_follow() -> None:
    matcher = constraint('"ab"').start()
    assert not matcher.is_complete
    assert led(matcher, spelled("ab")) and matcher.is_complete
    assert led(matcher, tiny().end_ids) and matcher.is_complete
    open_matcher = constraint("/a+/").start()
    assert led(open_matcher, spelled("a")) and may_end(open_matcher) and not open_matcher.is_complete


def test_matchers_of_one_constraint_go_their_own_ways() -> None:
    shared = constraint('"ab" | "cd"')
    first, second = shared.start(), shared.start()
    assert led(first, spelled("ab"))
    assert not first.mask()[token("c") // 32] >> token("c") % 32 & 1
    assert led(second, spelled("cd"))


@pytest.mark.parametrize("name", ["smollm", "llama-spm", "llama-bpe"])
def test_free_text_never_allows_a_control_token(name: str) -> None:
    tokenizer = vocabularies.tokenizer(name)
    mask = allowed(compiler(name).compile("start: /(.|\\n)*/", param="p").start())
    silent = [i for i in range(tokenizer.vocab_size) if not tokenizer.token_bytes(i)]
    assert len(silent) > 2
    assert {i for i in silent if mask[i]} == tokenizer.end_ids
    assert mask.sum() > 0.9 * tokenizer.vocab_size


def test_a_control_token_comes_only_where_the_grammar_names_it() -> None:
    start = token("<|im_start|>")
    grammar = f'start: TEXT <[{start}]> "x"\nTEXT: /(.|\\n)*/'
    matcher = compiler().compile(grammar, param="p").start()
    assert led(matcher, spelled("free\n<text>")) and led(matcher, [start, *spelled("x")]) and may_end(matcher)


def test_the_name_of_a_control_token_in_a_string_is_plain_text() -> None:
    matcher = constraint('"<|im_start|>"').start()
    assert not allowed(matcher)[token("<|im_start|>")]
    assert led(matcher, spelled("<|im_start|>")) and may_end(matcher)


def test_a_mark_is_special_though_it_writes_text() -> None:
    think = token("<think>")
    assert allowed(constraint("/.*/").start())[think]
    marked = ConstraintCompiler(tiny(), frozenset([think]))
    assert not allowed(marked.compile("start: /.*/", param="p").start())[think]
    assert led(marked.compile(f'start: <[{think}]> "x"', param="p").start(), [think, *spelled("x")])


def test_sentencepiece_spells_blanks_and_bytes() -> None:
    tokenizer = vocabularies.tokenizer("llama-spm")
    grammar = 'start: "Hello wörld 🧑‍🚀"'
    matcher = compiler("llama-spm").compile(grammar, param="p").start()
    tokens: list[int] = []
    while not matcher.is_complete:
        tokens.append(int(np.flatnonzero(allowed(matcher))[-1]))
        matcher.accept(tokens[-1])
    assert b"".join(map(tokenizer.token_bytes, tokens)).decode() == "Hello wörld 🧑‍🚀"


def test_a_model_without_end_tokens_takes_no_grammar() -> None:
    metadata = tiny_bpe_metadata(eos_token_id=None)
    names = metadata["tokenizer.ggml.tokens"]
    assert isinstance(names, list)
    names[names.index("<|im_end|>")] = "<|other|>"
    endless = ConstraintCompiler(Tokenizer.from_metadata(metadata))
    with pytest.raises(RequestError, match="no end token"):
        endless.compile('start: "a"', param="p")


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ('start: "a" b', 'unknown name: "b"'),
        ('begin: "a"', "no start rule"),
        ("start: /(?=a)b/", "look-around"),
        ("start: <|no_such_token|>", "unknown special token"),
        ("start: <[99999]>", "too large"),
        ('start: %json {"$ref": "#"}', "no text matches it"),
        ("start: %json {", "json"),
        ("start: /a", "lexer error"),
        ('start: %json {"type": "object", "properties": {"a": {"not": {}}}}', "not"),
        ("", "no start rule"),
        ("\x00", "lexer error"),
    ],
)
def test_what_is_wrong_with_a_grammar_is_told(grammar: str, reason: str) -> None:
    with pytest.raises(RequestError, match=f"(?i)^The grammar cannot be used: .*{reason}") as error:
        compiler().compile(grammar, param="the.field")
    assert error.value.param == "the.field" and error.value.code == "invalid_value"
    assert "\n" not in str(error.value) and "%llguidance" not in str(error.value)


def test_a_grammar_of_megabytes_is_refused() -> None:
    with pytest.raises(RequestError, match="longer than"):
        compiler().compile(f'start: "{"a" * compiler_module.LONGEST_GRAMMAR}"', param="p")


def test_a_grammar_is_compiled_once_and_a_bad_one_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ConstraintCompiler(tiny())
    asked: list[str] = []
    complaint = own._ready_tools().process.complaint

    def counted(grammar: str) -> str:
        asked.append(grammar)
        return complaint(grammar)

    monkeypatch.setattr(own._ready_tools().process, "complaint", counted)
    for _ in range(3):
        own.compile('start: "a"', param="p")
        with pytest.raises(RequestError):
            own.compile("start: b", param="p")
    assert len(asked) == 2


def test_the_cache_is_bounded_in_bytes_and_keeps_what_was_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_module, "CACHE_BYTES", 500_000)
    own = ConstraintCompiler(tiny())
    for number in range(40):
        own.compile('start: "kept"', param="p")
        own.compile(f'start: "{number}"', param="p")
    assert 2 <= len(own._cache._entries) <= 8
    assert 'start: "kept"' in own._cache._entries and 'start: "0"' not in own._cache._entries
    assert own._cache._bytes <= 500_000


def test_threads_compile_at_once() -> None:
    own = ConstraintCompiler(tiny())
    good: list[int] = []

    def work(number: int) -> None:
        matcher = own.compile(f'start: "{number % 5}"', param="p").start()
        if led(matcher, spelled(str(number % 5))):
            good.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(good) == list(range(20))


def test_other_threads_run_while_a_large_grammar_compiles() -> None:
    """BB-060: /health answers while a schema with 2,000 constants is compiled."""
    done = threading.Event()
    ticks: list[float] = []

    def tick() -> None:
        while not done.wait(0.001):
            ticks.append(time.monotonic())

    ticker = threading.Thread(target=tick)
    ticker.start()
    names = ", ".join(f'"value number {number}"' for number in range(2000))
    ConstraintCompiler(tiny()).compile(f'start: %json {{"enum": [{names}]}}', param="p")
    done.set()
    ticker.join()
    assert len(ticks) > 10


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ('head %json {"type": "integer"}\nhead[suffix="</t>"]: /(.|\\n)*/', "some <t> text\n</t>12"),
        ('head %json {"type": "integer"}\nhead[lazy]: /(.|\\n)*<go>/', "x<g <go>7"),
        (f'call* TEXT\ncall: head {ANY_OBJECT}\nhead[lazy]: TEXT "<go>"\nTEXT: /(.|\\n)*/', "a<go>{}b<go>{}c"),
        ('"a" sub "d"\nsub: %lark {\n%ignore /[ ]+/\nstart: "b" x\nx: "c"\n}', "ab  cd"),
        ('a | b\na: "A" %json {"type": "integer"}\nb: "A" %json {"type": "boolean"}', "Atrue"),
        ('A\nA: /(?s:.*)/ & ~/(?s:.*)END(?s:.*)/', "no E N D\nhere"),
        ('head "x"\nhead[max_tokens=3]: /a*/', "aaax"),
    ],
)  # fmt: skip
def test_the_dialect_is_as_its_notes_say(rule: str, text: str) -> None:
    assert matches(rule, text)
