"""What a tokenizer.json says of text and GGUF has no key for: the normalizer, the pre-tokenizer, added tokens' flags.

All of it stands under one key of our own, as JSON, so that a folder and the GGUF file made of it give the same ids.
The library `tokenizers` runs both, by the file's own JSON; only expressions from a file are never run.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Tokenizer
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from engine.errors import UnsupportedModelError

RULES_KEY = "octavo.tokenizer.rules"
MERGES_KEY = "octavo.tokenizer.merges"  # of a vocabulary that GGUF describes by scores: "left right", best first
FLAGS = ("lstrip", "rstrip", "single_word", "normalized")

_NORMALIZERS = frozenset(
    ("Sequence", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Replace", "Prepend", "Nmt")
) | {"BertNormalizer", "ByteLevel"}
_PRE_TOKENIZERS = frozenset(
    ("Sequence", "Metaspace", "Split", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit", "UnicodeScripts")
) | {"CharDelimiterSplit"}
_MEMBERS = ("normalizers", "pretokenizers", "processors", "decoders")
_EMPTY: dict[str, Any] = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}


@dataclass(frozen=True, slots=True)
class TokenFlags:
    """How an added token is found in a text, as `tokenizers.AddedToken` has it."""

    lstrip: bool = False  # white space before the token belongs to the token
    rstrip: bool = False  # white space after the token belongs to the token
    single_word: bool = False  # beside a letter or a digit, the token's text is plain text
    normalized: bool = False  # looked for after the tokens without this flag, in the normalized text

    @property
    def changes_text(self) -> bool:
        """Whether the token is more, or is found less often, than its text."""
        return self.lstrip or self.rstrip or self.single_word


@dataclass(frozen=True, slots=True)
class TokenizerRules:
    """The normalizer and the pre-tokenizer as their JSON, None for none; flags of the added tokens by id."""

    normalizer: Mapping[str, Any] | None = None
    pre_tokenizer: Mapping[str, Any] | None = None  # where GGUF names none: a vocabulary with byte fallback
    ignores_merges: bool = False  # there too: a word that is itself a token is taken whole
    flags: Mapping[int, TokenFlags] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> "TokenizerRules":
        """Raises UnsupportedModelError where a rule is not understood."""
        try:
            body = json.loads(text)
            named = body.pop("added_tokens", {})
            ids = {token for tokens in named.values() for token in tokens}
            flags = {token: TokenFlags(**{flag: token in tokens for flag, tokens in named.items()}) for token in ids}
            rules = cls(**body, flags=flags)
            if not isinstance(rules.normalizer, dict | None) or not isinstance(rules.pre_tokenizer, dict | None):
                raise TypeError("neither an object nor null")
            check_component(rules.normalizer, _NORMALIZERS, "a normalizer")
            check_component(rules.pre_tokenizer, _PRE_TOKENIZERS, "a pre-tokenizer")
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise UnsupportedModelError(
                f"The model file's {RULES_KEY} is not as this version writes it; convert the model again."
            ) from error
        return rules

    def write(self) -> str:
        """The JSON that `read` reads."""
        named = {flag: [token for token, flags in self.flags.items() if getattr(flags, flag)] for flag in FLAGS}
        body = {
            "normalizer": self.normalizer,
            "pre_tokenizer": self.pre_tokenizer,
            "ignores_merges": self.ignores_merges,
        }
        return json.dumps(body | {"added_tokens": {flag: tokens for flag, tokens in named.items() if tokens}})

    def build_normalizer(self) -> Normalizer | None:
        """The library's normalizer. Raises UnsupportedModelError."""
        return None if self.normalizer is None else _built("normalizer", self.normalizer)

    def build_pre_tokenizer(self, *, at_start: bool) -> PreTokenizer | None:
        """The library's pre-tokenizer, for what stands at the start of a text or elsewhere."""
        value = self.pre_tokenizer if at_start else _not_first(self.pre_tokenizer)
        built: PreTokenizer | None = None if value is None else _built("pre_tokenizer", value)
        return built


def members(value: object) -> Iterator[Mapping[str, Any]]:
    """The steps of a normalizer, pre-tokenizer, post-processor or decoder, in order, sequences taken apart."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            inner = next((part[key] for key in _MEMBERS if isinstance(part.get(key), list)), None)
            if inner is None:
                yield part
            else:
                waiting += reversed(inner)


def check_component(value: object, known: frozenset[str], what: str) -> None:
    """Raises UnsupportedModelError by the name of a step that is unknown or brings an expression of its own."""
    for part in members(value):
        pattern = part.get("pattern")
        if str(part.get("type")) not in known or (isinstance(pattern, Mapping) and "String" not in pattern):
            told = json.dumps({"type": part.get("type"), **({} if pattern is None else {"pattern": pattern})})
            raise UnsupportedModelError(
                f"The model's tokenizer has {what} that this version cannot run: {told}; use another file of the model."
            )


def _built(kind: str, value: Mapping[str, Any]) -> Any:
    try:
        return getattr(Tokenizer.from_str(json.dumps(_EMPTY | {kind: value})), kind)
    except Exception as error:  # the library raises bare Exceptions
        told = " ".join(str(error).split())
        raise UnsupportedModelError(
            f"The model's tokenizer has a {kind.replace('_', '-')} that the library tokenizers cannot read"
            f" ({told}); use another file of the model."
        ) from error


def _not_first(value: Any) -> Any:
    """The same without what is done at the very start of a text only."""
    if isinstance(value, list):
        return [_not_first(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    changed = {key: _not_first(part) for key, part in value.items()}
    return changed | {"prepend_scheme": "never"} if changed.get("prepend_scheme") == "first" else changed
