"""The pre-tokenizers of byte-level BPE: expressions that cut a text into words, by their names in `tokenizer.ggml.pre`.

Each expression cuts the pieces that the expression before it left, matches and gaps alike, as the models' own
tokenizer.json files have it. Which name means which expressions is the GGUF format's convention, as llama.cpp keeps
it. The pre-tokenizer of a tokenizer.json is recognized by its expressions, which are compared and never run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Regex, pre_tokenizers

from engine.errors import UnsupportedModelError

_SUFFIXES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
DIGITS = r"\p{N}"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = _SUFFIXES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
_QWEN2 = _SUFFIXES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
_QWEN35 = _SUFFIXES + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _SPACES
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
)
_DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES
)


def _ranges(text: str) -> str:
    """Hexadecimal code points and ranges of them -> the inside of a character class."""
    return "".join("-".join(chr(int(end, 16)) for end in item.split("-")) for item in text.split())


_HAN_KANA = f"[{_ranges('4E00-9FA5 3040-309F 30A0-30FF')}]+"
_HAN_TO_HANGUL = f"[{_ranges('4E00-9FA5 0800-4E00 AC00-D7FF')}]+"
_DEEPSEEK_PUNCTUATION = _ranges("21-2F 3A-5A") + r"\[\\\]" + _ranges("5E-7E FF01-FF0F FF1A-FF5E 2018-201F 3000-3002")
_DEEPSEEK_LETTERS = _ranges(
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1"
    " 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A"
    " 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4"
    " 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128"
    " 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D"
    " A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F"
    " 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How text is cut before byte-pair merging, and two habits of the models that use it."""

    patterns: tuple[str, ...]
    ignores_merges: bool = False  # a word that is itself a token is taken whole, whatever the merges say
    adds_bos: bool = False  # where the file does not say

    def build(self) -> pre_tokenizers.PreTokenizer:
        cuts = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in self.patterns]
        return pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_BY_NAMES: dict[str, PreTokenizer] = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2 phi-2 mpt olmo exaone4 trillion gigachat modern-bert": PreTokenizer((GPT2,)),
    "smollm starcoder refact command-r codeshell exaone minerva-7b": PreTokenizer((DIGITS, GPT2)),
    "qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan": PreTokenizer((_QWEN2,)),
    "qwen35": PreTokenizer((_QWEN35,)),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2": PreTokenizer((_LLAMA3,), True, True),
    "dbrx smaug-bpe glm4 chatglm-bpe": PreTokenizer((_LLAMA3,)),
    "tekken": PreTokenizer((_TEKKEN,), True, True),
    "deepseek-llm": PreTokenizer(
        (
            r"[\r\n]",
            rf"\s?[{_DEEPSEEK_LETTERS}]+",
            rf"\s?[{_DEEPSEEK_PUNCTUATION}]+",
            r"(?<!\s)\s+$",  # the look-behind changes no match, but keeps a long run of spaces linear
            _HAN_TO_HANGUL,
            r"\p{N}+",
        )
    ),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN_TO_HANGUL, r"\p{N}")),
    "deepseek-v3 hunyuan-dense": PreTokenizer((r"\p{N}{1,3}", _HAN_KANA, _DEEPSEEK3)),
}
PRE_TOKENIZERS = {name: pre for names, pre in _BY_NAMES.items() for name in names.split()}


def pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer of this `tokenizer.ggml.pre`. Raises UnsupportedModelError."""
    try:
        return PRE_TOKENIZERS[name]
    except KeyError:
        raise UnsupportedModelError(
            f"The pre-tokenizer {name!r} is not supported; use a model with one of {', '.join(sorted(PRE_TOKENIZERS))}."
        ) from None


# Pieces are cut out, and what lies between them is kept too or is nothing: the expressions match all text.
_CUTS = (("Isolated", False), ("Removed", True))


def pre_tokenizer_name(value: object, ignores_merges: bool, path: Path) -> str:
    """The name in `tokenizer.ggml.pre` of what cuts like this. Raises UnsupportedModelError."""
    patterns = _patterns(value)
    if patterns is not None:
        wanted = tuple(map(_normal, patterns))
        for name, known in PRE_TOKENIZERS.items():
            if tuple(map(_normal, known.patterns)) == wanted and known.ignores_merges == ignores_merges:
                return name
    raise UnsupportedModelError(f"{path} has a pre-tokenizer that this version does not know; use a GGUF file.")


def _patterns(value: object) -> list[str] | None:
    """The expressions of a chain that ends in byte-level letters; None where something else is in it."""
    if not isinstance(value, dict):
        return None
    members = value.get("pretokenizers", []) if value.get("type") == "Sequence" else [value]
    patterns: list[str] = []
    for part in members if isinstance(members, list) else []:
        found = _pattern(part) if isinstance(part, dict) else None
        if found is None:
            return None
        patterns += found
    return patterns


def _pattern(part: Mapping[str, Any]) -> list[str] | None:
    match part:
        case {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": behavior, "invert": invert}:
            return [pattern] if (behavior, invert) in _CUTS else None
        case {"type": "Digits", "individual_digits": True}:
            return [DIGITS]
        case {"type": "ByteLevel", "add_prefix_space": False, **rest}:
            return [GPT2] if rest.get("use_regex", True) else []
    return None


def _normal(pattern: str) -> str:
    """One spelling for what may be escaped or not."""
    return pattern.replace("\r", r"\r").replace("\n", r"\n").replace(r"\"", '"')
