"""The vocabulary of a GGUF file: the `tokenizer.ggml.*` metadata, checked once and frozen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np

from engine.errors import ModelFileError, UnsupportedModelError
from engine.text.tokenizer_keys import PREFIX, check_tokenizer_keys, duplicate_tokens
from engine.text.tokenizer_rules import MERGES_KEY, RULES_KEY, TokenizerRules

# How families name the three tokens of infilling.
INFILL_NAMES = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # noqa: RUF001
    ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
    ("<PRE>", "<SUF>", "<MID>"),
    ("\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"),
)


class InfillIds(NamedTuple):
    """The tokens before the text on the left, the text on the right, and what is to be written between them."""

    prefix: int
    suffix: int
    middle: int


class TokenType(IntEnum):
    """What the GGUF format says of a token (`tokenizer.ggml.token_type`)."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# Which type a text has that tokens of several types share.
_STRONGEST = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED, TokenType.BYTE, TokenType.NORMAL)

# Tokens that end a turn, whatever type the file gives them: nobody writes these by accident.
END_MARKERS = frozenset(
    (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|flush|>",
        "<|calls|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<end_of_utterance>",
        "<turn|>",
        "<|tool_response>",
        "[e~[",
        "<|fim_pad|>",
        "<fim_pad>",
        "<fim-pad>",
        "<|repo_name|>",
        "<fim-repo>",
        "<|file_sep|>",
        "<｜end▁of▁sentence｜>",  # noqa: RUF001
    )
)
_ENDS = ("eot", "eom", "fim_pad", "fim_rep", "fim_sep")  # beside eos
_CHANNELS = ({"<|return|>", "<|call|>"}, {"<|calls|>", "<|flush|>"})
# Tokens that end a turn only where the file says that they are control tokens: otherwise they are plain markup.
END_CONTROLS = frozenset(["</s>", "<eos>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<PAD>", "[PAD]", "<reponame>"])


@dataclass(frozen=True)
class Vocabulary:
    """Everything a tokenizer needs to know of its model; ids index `tokens` and `types`."""

    model: str  # "gpt2" is byte-level BPE, "llama" is SentencePiece
    pre: str  # name of the pre-tokenizer; BPE only
    tokens: list[str]
    ids: dict[str, int]  # every token's text -> its id, of several the last that is not unused
    duplicates: dict[str, list[int]]  # a text that several tokens have -> their ids
    types: list[int]
    scores: list[float]  # SentencePiece only, else empty
    merges: list[str]  # BPE only, else empty
    rules: TokenizerRules | None  # None: as GGUF has it for this kind
    bos_id: int | None
    eos_id: int | None
    end_ids: frozenset[int]
    add_bos: bool | None  # None: as the kind of tokenizer has it
    add_eos: bool  # whole texts end with EOS: what embedding models read, not prompts to continue
    infill_ids: InfillIds | None  # None: the model does not write between two texts
    add_space_prefix: bool
    strips_after_special: bool  # white space after a special token is dropped (the Phi-3 models)

    def of_type(self, *types: TokenType) -> dict[str, int]:
        """Text -> id of the tokens of these types."""
        texts = (self.tokens[token] for kind in types for token in self._by_type.get(kind, ()))
        return {text: self.ids[text] for text in texts}

    @cached_property
    def _by_type(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for token, kind in enumerate(self.types):
            found.setdefault(kind, []).append(token)
        return found

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object]) -> "Vocabulary":
        """Read and check `tokenizer.ggml.*`. Raises ModelFileError or UnsupportedModelError."""
        model = _text(metadata, "model", None)
        check_tokenizer_keys(metadata)
        if model not in ("gpt2", "llama"):
            raise UnsupportedModelError(
                f"The tokenizer kind {model!r} is not supported; use a model with a gpt2 or llama tokenizer."
            )
        tokens = _tokens(metadata)
        duplicates = duplicate_tokens(tokens)
        types = _types(metadata, tokens)
        ids = _ids(tokens, types, duplicates)
        _share_types(types, duplicates)
        eos_id = _token_id(metadata, "eos_token_id", len(tokens), 2 if model == "llama" else None)
        rules = _rules(metadata)
        by_scores = model == "llama" and rules is None
        return cls(
            model=model,
            pre=_text(metadata, "pre", "default"),
            tokens=tokens,
            ids=ids,
            duplicates=duplicates,
            types=types,
            scores=_scores(metadata, len(tokens)) if by_scores else [],
            merges=[] if by_scores else _strings(metadata, "merges" if model == "gpt2" else MERGES_KEY),
            rules=rules,
            bos_id=_token_id(metadata, "bos_token_id", len(tokens), 1 if model == "llama" else None),
            eos_id=eos_id,
            end_ids=_end_ids(metadata, tokens, types, eos_id),
            add_bos=_flag(metadata, "add_bos_token"),
            add_eos=_flag(metadata, "add_eos_token") is True,
            infill_ids=_infill_ids(metadata, ids),
            add_space_prefix=_flag(metadata, "add_space_prefix") is not False and by_scores,
            strips_after_special=_is_phi3(metadata) and rules is None,
        )


def _fault(key: str, what: str) -> ModelFileError:
    return ModelFileError(f"The model file's {PREFIX}{key} {what}; download the file again or use another one.")


def _text(metadata: Mapping[str, object], key: str, default: str | None) -> str:
    value = metadata.get(PREFIX + key, default)
    if not isinstance(value, str):
        raise _fault(key, "is missing" if value is None else "is not a string")
    return value


def _flag(metadata: Mapping[str, object], key: str) -> bool | None:
    value = metadata.get(PREFIX + key)
    if value is None:
        return None
    if not isinstance(value, bool | np.bool_):
        raise _fault(key, "is not a boolean")
    return bool(value)


def _rules(metadata: Mapping[str, object]) -> TokenizerRules | None:
    value = metadata.get(RULES_KEY)
    return TokenizerRules.read(value) if isinstance(value, str) else None


def _array(metadata: Mapping[str, object], key: str) -> list[object]:
    value = metadata.get(key if key == MERGES_KEY else PREFIX + key)
    if isinstance(value, np.ndarray):
        return cast(list[object], value.tolist())
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise _fault(key, "is missing" if value is None else "is not an array")
    return list(value)


def _strings(metadata: Mapping[str, object], key: str) -> list[str]:
    values = _array(metadata, key)
    if set(map(type, values)) - {str}:
        raise _fault(key, "holds something that is not a string")
    return cast(list[str], values)


def _tokens(metadata: Mapping[str, object]) -> list[str]:
    tokens = _strings(metadata, "tokens")
    if not tokens:
        raise _fault("tokens", "is empty")
    if "" in tokens:  # a nameless token can be sampled, but no text gives it
        tokens = [text or f"[EMPTY_{i}]" for i, text in enumerate(tokens)]
    return tokens


def _numbers(metadata: Mapping[str, object], key: str, count: int, kinds: set[type]) -> list[object]:
    values = _array(metadata, key)
    if set(map(type, values)) - kinds:
        raise _fault(key, "holds something that is not a number")
    if len(values) != count:
        raise _fault(key, f"has {len(values)} entries for {count} tokens")
    return values


def _types(metadata: Mapping[str, object], tokens: list[str]) -> list[int]:
    """The type of each token."""
    if PREFIX + "token_type" not in metadata:
        types: list[int] = [TokenType.NORMAL] * len(tokens)
    else:
        types = cast(list[int], _numbers(metadata, "token_type", len(tokens), {int}))
    for token, text in enumerate(tokens):
        if text in END_MARKERS:
            types[token] = TokenType.CONTROL
    return types


def _ids(tokens: list[str], types: list[int], duplicates: Mapping[str, list[int]]) -> dict[str, int]:
    """The id that each text is encoded as; an unused one would be an embedding that was never trained."""
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    for text, alike in duplicates.items():
        ids[text] = next((token for token in reversed(alike) if types[token] != TokenType.UNUSED), alike[-1])
    return ids


def _share_types(types: list[int], duplicates: Mapping[str, list[int]]) -> None:
    """Give tokens of one text one type: control tokens come before all others, and unused ones last."""
    for ids in duplicates.values():
        found = {types[token] for token in ids}
        shared = next((kind for kind in _STRONGEST if kind in found), types[ids[-1]])
        for token in ids:
            types[token] = shared


def _scores(metadata: Mapping[str, object], count: int) -> list[float]:
    scores = cast(list[float], _numbers(metadata, "scores", count, {float, int}))
    if not np.isfinite(scores).all():
        raise _fault("scores", "holds a score that is not finite")
    return scores


def _token_id(metadata: Mapping[str, object], key: str, count: int, default: int | None) -> int | None:
    value = metadata.get(PREFIX + key, default)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise _fault(key, "is not an integer")
    if not 0 <= value < count:
        raise _fault(key, f"is {value}, but the vocabulary has {count} tokens")
    return int(value)


def _end_ids(metadata: Mapping[str, object], tokens: list[str], types: list[int], eos_id: int | None) -> frozenset[int]:
    """All ids that end a turn: a text that several tokens have ends the turn under each of them."""
    said = (_token_id(metadata, f"{name}_token_id", len(tokens), None) for name in _ENDS)
    named = {tokens[token] for token in (eos_id, *said) if token is not None}
    ends = {
        token
        for token, text in enumerate(tokens)
        if text in named or text in END_MARKERS or (text in END_CONTROLS and types[token] == TokenType.CONTROL)
    }
    texts = {tokens[token] for token in ends}
    if any(channel <= texts for channel in _CHANNELS):
        ends = {token for token in ends if tokens[token] != "<|end|>"}  # there it ends a channel, not the turn
    return frozenset(ends)


def _infill_ids(metadata: Mapping[str, object], ids: dict[str, int]) -> InfillIds | None:
    """By the file's own word, under the format's present names or those of before, else by the tokens' names."""
    for keys in (("fim_pre", "fim_suf", "fim_mid"), ("prefix", "suffix", "middle")):
        told = [_token_id(metadata, f"{key}_token_id", len(ids), None) for key in keys]
        if None not in told:
            return InfillIds(*cast(list[int], told))
    named = (names for names in INFILL_NAMES if all(name in ids for name in names))
    first = next(named, None)
    return None if first is None else InfillIds(*(ids[name] for name in first))


def _is_phi3(metadata: Mapping[str, object]) -> bool:
    name = str(metadata.get("general.name", "")).lower()
    return "phi-3" in name or "phi3" in name
