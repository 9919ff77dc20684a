"""Byte-level BPE's pre-tokenizers, by the names of `tokenizer.ggml.pre`: the regular expressions that cut text to words.

Each expression cuts the pieces that the one before it left, matches and gaps alike, as the models' own tokenizer.json
files have it. Which name means which expressions is the GGUF format's convention, as llama.cpp keeps it.
"""

from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers

from engine.errors import UnsupportedModelError

_SUFFIXES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
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
_HAN_TO_HANGUL = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ί"  # noqa: RUF001
    "ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"  # noqa: RUF001
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
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2 phi-2 mpt olmo exaone4 trillion gigachat modern-bert": PreTokenizer((_GPT2,)),
    "smollm starcoder refact command-r codeshell exaone minerva-7b": PreTokenizer((r"\p{N}", _GPT2)),
    "qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan": PreTokenizer((_QWEN2,)),
    "qwen35": PreTokenizer((_QWEN35,)),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2": PreTokenizer((_LLAMA3,), True, True),
    "dbrx smaug-bpe glm4 chatglm-bpe": PreTokenizer((_LLAMA3,)),
    "tekken": PreTokenizer((_TEKKEN,), True, True),
    "deepseek-llm": PreTokenizer(
        (
            r"[\r\n]",
            rf"\s?[{_DEEPSEEK_LETTERS}]+",
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",  # noqa: RUF001
            r"(?<!\s)\s+$",  # the look-behind changes no match, but keeps a long run of spaces linear
            _HAN_TO_HANGUL,
            r"\p{N}+",
        )
    ),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN_TO_HANGUL, r"\p{N}")),
    "deepseek-v3 hunyuan-dense": PreTokenizer((r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK3)),
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
