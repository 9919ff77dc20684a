"""Every key `tokenizer.*` of a GGUF file is used, known to change nothing here, refused, or told of in a warning.

The keys are those of the GGUF format and of llama.cpp's src/llama-arch.cpp.
"""

from collections.abc import Mapping, Sequence, Sized

import numpy as np

from engine.errors import UnsupportedModelError

PREFIX = "tokenizer.ggml."

_INFILL = ("fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep", "prefix", "suffix", "middle")
_USED = frozenset(
    PREFIX + key
    for key in (
        *("model", "pre", "tokens", "token_type", "scores", "merges", "add_bos_token", "add_eos_token"),
        "add_space_prefix",
        *(f"{name}_token_id" for name in ("bos", "eos", "eot", "eom", *_INFILL)),
    )
) | {"tokenizer.chat_template"}
# Padding and masks have no place in what is served; a separator and token types stand between the two texts that models
# of another kind read; the whole tokenizer.json says again what the other keys say.
_HARMLESS = frozenset(
    PREFIX + key
    for key in (
        *("padding_token_id", "mask_token_id", "cls_token_id", "unknown_token_id", "seperator_token_id"),
        *("separator_token_id", "add_sep_token", "token_type_count"),
    )
) | {"tokenizer.huggingface.json", "tokenizer.chat_templates"}
# They give other ids unless they are off or empty.
_CHANGING = frozenset(
    PREFIX + key
    for key in (
        *("remove_extra_whitespaces", "precompiled_charsmap"),
        *("normalizer.lowercase", "normalizer.strip_accents"),
    )
)


def check_tokenizer_keys(metadata: Mapping[str, object]) -> None:
    """Raises UnsupportedModelError by the name of a key that gives other ids than this version does."""
    for key in sorted(_CHANGING & metadata.keys()):
        value = metadata[key]
        if not _is_off(value):
            told = f"{len(value)} entries" if isinstance(value, Sized) and not isinstance(value, str) else repr(value)
            raise UnsupportedModelError(
                f"The model file's {key} is {told}, and this version encodes no text like that;"
                " use another file of the model."
            )


def tokenizer_warnings(metadata: Mapping[str, object]) -> list[str]:
    """What is not done, or done by choice, with the `tokenizer.*` keys of a model that is served: a sentence each."""
    known = _USED | _HARMLESS | _CHANGING
    unknown = sorted(key for key in metadata if key.startswith("tokenizer.") and key not in known)
    told = [f"The model file's keys {', '.join(unknown)} are not used."] if unknown else []
    if metadata.get(PREFIX + "model") == "gpt2" and PREFIX + "pre" not in metadata:
        told.append(
            f"The model file has no {PREFIX}pre, which says how text is cut to words: 'default' is taken for it."
        )
    tokens = metadata.get(PREFIX + "tokens")
    duplicates = duplicate_tokens(tokens) if isinstance(tokens, list) else {}
    if duplicates:
        text, ids = next(iter(duplicates.items()))
        told.append(
            f"Texts that several of the model's tokens have: {len(duplicates)}, first {text!r}, ids {_listed(ids)};"
            " such a text is encoded as the last of its ids that is not unused, and each is decoded as that text."
        )
    return told


def duplicate_tokens(tokens: Sequence[str]) -> dict[str, list[int]]:
    """The ids of each text that several tokens have; nameless tokens are none."""
    named = len(tokens) - tokens.count("")
    if len(set(tokens) - {""}) == named:
        return {}
    found: dict[str, list[int]] = {}
    for token, text in enumerate(tokens):
        if text:
            found.setdefault(text, []).append(token)
    return {text: ids for text, ids in found.items() if len(ids) > 1}


def _listed(ids: Sequence[int]) -> str:
    return f"{', '.join(map(str, ids[:-1]))} and {ids[-1]}"


def _is_off(value: object) -> bool:
    if isinstance(value, np.ndarray | Sized):
        return len(value) == 0
    return value is None or not value
