"""The tokenizers that grammars are tried on, and how a text is led through a constraint."""

from collections.abc import Iterable
from functools import cache

from engine.api.constraint import Constraint, Matcher
from engine.text.constraints.compiler import ConstraintCompiler
from engine.text.tokenizer import Tokenizer
from tests.engine.text import vocabularies
from tests.engine.text.constraints.random_answers import allowed


@cache
def tiny() -> Tokenizer:
    """Bytes, a few merges, two control tokens and a user-defined <think>."""
    return Tokenizer.from_metadata(vocabularies.tiny_bpe_metadata())


@cache
def compiler(name: str = "tiny") -> ConstraintCompiler:
    """For the tiny tokenizer, or one of the real vocabularies."""
    return ConstraintCompiler(tiny() if name == "tiny" else vocabularies.tokenizer(name))


def constraint(rule: str) -> Constraint:
    """A rule alone, for the tiny tokenizer."""
    return compiler().compile(f"start: {rule}", param="rule")


def token(name: str) -> int:
    """A token of the tiny vocabulary by its name."""
    return next(i for i in range(tiny().vocab_size) if tiny().token_text(i) == name)


def spelled(text: str) -> list[int]:
    """The text's bytes, a token each."""
    return [byte_tokens()[byte] for byte in text.encode()]


@cache
def byte_tokens() -> dict[int, int]:
    written = {tiny().token_bytes(i): i for i in range(tiny().vocab_size)}
    return {byte: written[bytes([byte])] for byte in range(256)}


def led(matcher: Matcher, tokens: Iterable[int]) -> bool:
    """Whether the matcher allows these tokens one after the other, each of which it then takes."""
    for following in tokens:
        if not allowed(matcher)[following]:
            return False
        matcher.accept(following)
    return True


def may_end(matcher: Matcher) -> bool:
    """End tokens are allowed all or none."""
    ends = {bool(allowed(matcher)[end]) for end in tiny().end_ids}
    assert len(ends) == 1
    return ends.pop()


def matches(rule: str, text: str) -> bool:
    """Whether the whole text is an answer that the rule allows."""
    matcher = constraint(rule).start()
    return led(matcher, spelled(text)) and may_end(matcher)
