"""Vocabularies of bytes with a format's own tokens, and answers as an engine would hand them out."""

from collections.abc import Iterator, Sequence
from functools import cache

from engine.api.request import Token
from engine.text.bpe import letter_bytes
from engine.text.formats.answer_format import AnswerFormat
from engine.text.formats.detection import (
    DEEPSEEK_V3,
    DEEPSEEK_V3_1,
    DEEPSEEK_V3_2,
    DEEPSEEK_V4,
    HERMES,
    KIMI,
    LLAMA3,
    MINIMAX,
    QWEN_XML,
    SEED_XML,
    KnownFormat,
    tag_tokens,
)
from engine.text.formats.parser import AnswerParser
from engine.text.formats.parts import CallArguments, CallBegin, CallEnd, Content, Part, Reasoning, Tool
from engine.text.tokenizer import Tokenizer
from tests.engine.text.vocabularies import CONTROL, USER, tiny_bpe_metadata

THINK = ("<think>", "</think>")
FORMATS: dict[str, KnownFormat] = {
    form.name: form
    for form in (
        HERMES,
        LLAMA3,
        QWEN_XML,
        SEED_XML,
        MINIMAX,
        DEEPSEEK_V3,
        DEEPSEEK_V3_1,
        DEEPSEEK_V3_2,
        DEEPSEEK_V4,
        KIMI,
    )
}


def vocabulary(marks: Sequence[str]) -> Tokenizer:
    """All bytes, two control tokens, and these as tokens of their own."""
    tokens = [*letter_bytes(), "<|im_start|>", "<|im_end|>", *marks]
    types = [1] * 256 + [CONTROL, CONTROL] + [USER] * len(marks)
    ids = {"bos_token_id": 256, "eos_token_id": 257}
    return Tokenizer.from_metadata(tiny_bpe_metadata(tokens=tokens, token_type=types, merges=[], **ids))


@cache
def make(name: str, *, marked: bool = True, thinking: tuple[str, str] | None = THINK) -> tuple[AnswerFormat, Tokenizer]:
    """A format, in a vocabulary that has its tags as tokens or has them not."""
    form = FORMATS[name]
    # Of the DSML tags, real vocabularies have one part as a token.
    marks = {tag for tag in tag_tokens(thinking, form) if "DSML" not in tag or "<" not in tag}
    tokenizer = vocabulary(sorted(marks) if marked else [])
    return AnswerFormat(thinking, form, tokenizer), tokenizer


def tokens_of(text: str, form: AnswerFormat, tokenizer: Tokenizer) -> list[Token]:
    """The text a character at a time; a mark where the vocabulary has one."""
    tokens = []
    names = sorted((tokenizer.token_text(token) for token in form.marks), key=len, reverse=True)
    while text:
        name = next((name for name in names if text.startswith(name)), "")
        if name:
            tokens.append(Token(tokenizer.encode(name, parse_special=True)[0], name, is_mark=True))
        else:
            tokens.append(Token(0, text[0]))
        text = text[len(name) or 1 :]
    return tokens


def pieces_of(tokens: Sequence[Token], cuts: Iterator[int]) -> list[list[Token]]:
    """The same answer in other pieces: each cut says how many characters of text the next token takes."""
    pieces: list[list[Token]] = []
    for token in tokens:
        if not token.is_mark and pieces and not pieces[-1][0].is_mark and next(cuts):
            pieces[-1].append(token)
        else:
            pieces.append([token])
    return [[Token(0, "".join(t.text for t in piece))] if not piece[0].is_mark else piece for piece in pieces]


def parse(parser: AnswerParser, pieces: Sequence[Sequence[Token]]) -> list[Part]:
    """All parts of an answer, neighbours merged."""
    parts = [part for piece in pieces for part in parser.push(piece)]
    return merged([*parts, *parser.finish()])


def merged(parts: Sequence[Part]) -> list[Part]:
    """Neighbours of one kind as one."""
    whole: list[Part] = []
    for part in parts:
        last = whole[-1] if whole else None
        if isinstance(part, CallArguments) and isinstance(last, CallArguments) and part.index == last.index:
            whole[-1] = CallArguments(part.index, last.text + part.text)
        elif isinstance(part, Content) and isinstance(last, Content):
            whole[-1] = Content(last.text + part.text)
        elif isinstance(part, Reasoning) and isinstance(last, Reasoning):
            whole[-1] = Reasoning(last.text + part.text)
        else:
            whole.append(part)
    return whole


def read(name: str, text: str, *tools: Tool, inside: bool = False, marked: bool = True) -> list[Part]:
    """What an answer in this format says."""
    form, tokenizer = make(name, marked=marked)
    parser = form.parser(inside_thinking=inside, tools=tools)
    return parse(parser, [tokens_of(text, form, tokenizer)])


def calls_of(parts: Sequence[Part]) -> list[tuple[str, str]]:
    """Name and arguments of each call."""
    names = [part.name for part in parts if isinstance(part, CallBegin)]
    arguments = {part.index: part.text for part in parts if isinstance(part, CallArguments)}
    return [(name, arguments.get(index, "")) for index, name in enumerate(names)]


def ended(parts: Sequence[Part]) -> int:
    """How many calls are complete."""
    return sum(isinstance(part, CallEnd) for part in parts)
