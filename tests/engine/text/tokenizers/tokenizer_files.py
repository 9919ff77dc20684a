"""Tiny tokenizer.json files, and what the library `tokenizers` makes of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as LibraryTokenizer

from engine.text.bpe import letter_bytes
from engine.text.tokenizer import Tokenizer
from engine.text.tokenizer_json import tokenizer_metadata

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
MERGES = ["Ã ©", "Ì ģ", "e Ì", "eÌ ģ", "a b", "ab c", "f i", "A B", "Ġ a", "Ġa b", "ï ¼", "ï¼ ¡"]
SPACE_MERGES = ["a b", "ab c", "\u2581 a", "\u2581a b", "\u2581 \u2581", "f i", "e \u0301", "\u2581 \u00e9"]
_OPTIONS = {"dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None}


def added_token(token: int, content: str, **flags: bool) -> dict[str, Any]:
    off = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"id": token, "content": content, **off, **flags}


def byte_level(added: Mapping[str, Mapping[str, bool]], **changes: object) -> dict[str, Any]:
    """All bytes and a few merges, and these added tokens with their flags."""
    names = [*letter_bytes(), *(merge.replace(" ", "") for merge in MERGES)]
    return _file(names, MERGES, {"byte_fallback": False}, added) | {
        "pre_tokenizer": BYTE_LEVEL,
        "decoder": BYTE_LEVEL,
        **changes,
    }


def byte_fallback(added: Mapping[str, Mapping[str, bool]], **changes: object) -> dict[str, Any]:
    """The byte tokens, letters, spaces as U+2581, a few merges, and these added tokens with their flags."""
    letters = dict.fromkeys("".join(SPACE_MERGES).replace(" ", "") + "ABxyz<>|.,1\n")
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    names += [merge.replace(" ", "") for merge in SPACE_MERGES]
    options = {"byte_fallback": True, "unk_token": "<unk>"}
    return _file(names, SPACE_MERGES, options, {"<unk>": {"special": True}, **added}) | changes


def _file(
    names: list[str], merges: list[str], options: dict[str, object], added: Mapping[str, Mapping[str, bool]]
) -> dict[str, Any]:
    vocabulary = {name: token for token, name in enumerate(dict.fromkeys(names))}
    new = [text for text in added if text not in vocabulary]
    places = vocabulary | {text: len(vocabulary) + place for place, text in enumerate(new)}
    model = {"type": "BPE", **_OPTIONS, "fuse_unk": False, "ignore_merges": False, **options}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token(places[text], text, **flags) for text, flags in added.items()],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {**model, "vocab": vocabulary, "merges": merges},
    }


def both(body: dict[str, Any], folder: Path) -> tuple[LibraryTokenizer, Tokenizer]:
    """The library's tokenizer of a file and ours."""
    text = json.dumps(body)
    (folder / "tokenizer.json").write_text(text)
    return LibraryTokenizer.from_str(text), Tokenizer.from_metadata(tokenizer_metadata(folder, 0))
