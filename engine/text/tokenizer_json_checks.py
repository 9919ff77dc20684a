"""Every key of a tokenizer.json is honoured, known to change no token, or refused by its name and value."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from engine.errors import UnsupportedModelError
from engine.text.bpe import letter_bytes
from engine.text.tokenizer_rules import members

# What the file's other parts are; whoever calls the library cuts and pads at wish, so these two change no token.
_BODY = frozenset(["added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model"])
_STEPS = frozenset(["normalizer", "post_processor", "decoder"])  # objects or null; so is what cuts text, elsewhere
_HARMLESS = frozenset(["version", "truncation", "padding"])
_MODEL = frozenset(["type", "vocab", "merges", "ignore_merges", "byte_fallback", "unk_token", "fuse_unk"])
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "dropout": (None, 0, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
}
_ADDED = frozenset(["id", "content", "special", "lstrip", "rstrip", "single_word", "normalized"])
_POST_PROCESSORS = frozenset(["ByteLevel", "TemplateProcessing"])
_BYTE_LEVEL_DECODERS = frozenset(["ByteLevel", "Fuse"])
_FALLBACK_DECODERS = frozenset(["Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"])
_SPACES = ({"pattern": {"String": "\u2581"}, "content": " "}, {"content": " ", "start": 1, "stop": 0})


def check_keys(body: Mapping[str, Any], model: Mapping[str, Any], path: Path) -> None:
    """Raises UnsupportedModelError, as all functions here do."""
    _refuse(body, _BODY | _HARMLESS, {}, "", path)
    for key in _STEPS & body.keys():
        if not isinstance(body[key], dict | None):
            raise _refusal(path, key, body[key])
    _refuse(model, _MODEL, _NEUTRAL, "model.", path)
    for entry in body.get("added_tokens") or []:
        _refuse(entry, _ADDED, {}, f"added_tokens {entry.get('content')!r} ", path)


def check_letters(model: Mapping[str, Any], path: Path) -> None:
    """A byte-level vocabulary has every byte, or drops bytes: nothing takes their place."""
    unknown = model.get("unk_token")
    if unknown is not None and not letter_bytes().keys() <= model["vocab"].keys():
        raise _refusal(path, "model.unk_token", unknown)


def check_decoder(value: object, byte_level: bool, path: Path) -> None:
    """Tokens are written as their bytes; a decoder that does anything else is refused."""
    known = _BYTE_LEVEL_DECODERS if byte_level else _FALLBACK_DECODERS
    for part in members(value):
        kind = str(part.get("type"))
        rest = {key: part[key] for key in part if key != "type"}
        if kind not in known or (kind in ("Replace", "Strip") and rest not in _SPACES):
            raise _refusal(path, "decoder", part)


def template_ends(value: object, path: Path) -> tuple[str | None, str | None]:
    """The tokens that the post-processor puts before and after a text."""
    first = last = None
    for part in members(value):
        if str(part.get("type")) not in _POST_PROCESSORS:
            raise _refusal(path, "post_processor", part)
        if part.get("type") == "TemplateProcessing":
            pieces = part.get("single") or [{"Sequence": {"id": "A"}}]
            texts = [_special_text(piece) for piece in pieces] if isinstance(pieces, list) else []
            if _has_several_ids(part) or texts.count(None) != 1 or len(texts) > 3 or None not in texts[:2]:
                raise _refusal(path, "post_processor", pieces)
            before, after = texts[: texts.index(None)], texts[texts.index(None) + 1 :]
            if len(after) > 1:
                raise _refusal(path, "post_processor", pieces)
            first, last = next(iter(before), None), next(iter(after), None)
    return first, last


def check_end(name: str, added: str | None, named: str, path: Path) -> None:
    """The token put before a text is the configuration's bos_token, the one after it the eos_token."""
    if added is not None and added != named:
        raise _refusal(path, f"post_processor, whose {name} is not the one of tokenizer_config.json,", added)


def _has_several_ids(template: Mapping[str, Any]) -> bool:
    """Whether one of the template's tokens stands for several."""
    named = template.get("special_tokens")
    entries = named.values() if isinstance(named, Mapping) else ()
    ids = [entry["ids"] for entry in entries if isinstance(entry, Mapping) and isinstance(entry.get("ids"), list)]
    return any(len(each) != 1 for each in ids)


def _special_text(piece: object) -> str | None:
    """The special token that stands in this place of a post-processor's template; None where the text does."""
    match piece:
        case {"SpecialToken": {"id": str(text)}}:
            return text
    return None


def _refuse(
    values: Mapping[str, Any], known: Collection[str], neutral: Mapping[str, tuple[object, ...]], place: str, path: Path
) -> None:
    for key, value in values.items():
        if key not in known and not (key in neutral and value in neutral[key]):
            raise _refusal(path, place + key, value)


def _refusal(path: Path, key: str, value: object) -> UnsupportedModelError:
    told = json.dumps(value, ensure_ascii=False)
    told = told if len(told) <= 200 else told[:200] + "..."
    return UnsupportedModelError(
        f"{path} has {key}: {told}, which this version cannot do; use another file of the model."
    )
