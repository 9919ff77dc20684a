"""Recognizes the pre-tokenizer of a tokenizer.json by its expressions, which are compared and never run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import UnsupportedModelError
from engine.text.pretokenizers import DIGITS, GPT2, PRE_TOKENIZERS

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
