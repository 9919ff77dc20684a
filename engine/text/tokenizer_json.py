"""Hugging Face's tokenizer files -> the `tokenizer.*` metadata that a GGUF file of the same model has.

tokenizer.json holds the vocabulary; special tokens and the template stand in tokenizer_config.json,
generation_config.json and chat_template.jinja.

Every key of a tokenizer.json is honoured, known to change no token, or refused by its name and value.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError, UnsupportedModelError
from engine.text.bpe import letter_bytes
from engine.text.chat_template import read_template
from engine.text.pretokenizers import pre_tokenizer_name
from engine.text.tokenizer_keys import PREFIX
from engine.text.tokenizer_rules import FLAGS, MERGES_KEY, RULES_KEY, TokenFlags, TokenizerRules, members
from engine.text.vocabulary import END_MARKERS, TokenType
from engine.weights.files.gguf_values import MetadataValue
from engine.weights.files.json_file import read_json_object

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


MAX_TOKENIZER_BYTES = 100_000_000
MAX_TOKENS = 1 << 22
_NEVER_MERGED = -1e9


def tokenizer_metadata(folder: Path, size: int) -> dict[str, MetadataValue]:
    """The keys `tokenizer.*`, with names made up for ids below `size` that have none; nothing without tokenizer.json.

    Raises ModelFileError or UnsupportedModelError.
    """
    path = folder / "tokenizer.json"
    if not path.exists():
        return {}
    files = _TokenizerFiles.read(path)
    tokens = _token_list(files, size)
    ids = {text: token for token, text in enumerate(tokens)}
    metadata: dict[str, MetadataValue] = {PREFIX + "tokens": tokens}
    metadata[PREFIX + "token_type"] = _types(files, tokens)
    byte_level = _is_byte_level(files)
    check_decoder(files.body.get("decoder"), byte_level, path)
    if byte_level:
        check_letters(files.model, path)
        pre = pre_tokenizer_name(files.body.get("pre_tokenizer"), files.model.get("ignore_merges") is True, path)
        metadata |= {PREFIX + "model": "gpt2", PREFIX + "pre": pre, PREFIX + "merges": files.merges}
    else:
        metadata |= {PREFIX + "model": "llama", PREFIX + "add_space_prefix": _adds_space(files)}
        metadata |= {PREFIX + "scores": _scores(files.merges, tokens), MERGES_KEY: files.merges}
    metadata |= _rules(files, byte_level)
    metadata |= _special_ids(files, ids) | _added_ends(files, ids)
    template = _template(folder, files.config)
    return metadata if template is None else metadata | {"tokenizer.chat_template": template}


@dataclass(frozen=True, slots=True)
class _TokenizerFiles:
    path: Path  # of tokenizer.json
    body: Mapping[str, Any]
    model: Mapping[str, Any]
    vocabulary: Mapping[str, int]
    merges: list[str]  # "left right", best first
    added: list[Mapping[str, Any]]
    config: Mapping[str, Any]
    generation: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> "_TokenizerFiles":
        body = read_json_object(path, MAX_TOKENIZER_BYTES)
        model, added = body.get("model"), body.get("added_tokens") or []
        if not isinstance(model, dict) or model.get("type", "BPE") != "BPE":
            kind = model.get("type") if isinstance(model, dict) else None
            raise UnsupportedModelError(f"{path} is of the kind {kind!r}; this version reads BPE tokenizers.")
        vocabulary = model.get("vocab")
        if not isinstance(vocabulary, dict) or not all(type(token) is int for token in vocabulary.values()):
            raise ModelFileError(f"{path} is broken: its vocab does not give each token a number.")
        if not isinstance(added, list) or not all(_is_added(entry) for entry in added):
            raise ModelFileError(f"{path} is broken: its added_tokens are not tokens.")
        check_keys(body, model, path)
        config, generation = (
            read_json_object(other, MAX_TOKENIZER_BYTES) if (other := path.with_name(name)).exists() else {}
            for name in ("tokenizer_config.json", "generation_config.json")
        )
        return cls(path, body, model, vocabulary, _merges(model, path), added, config, generation)


def _is_added(entry: object) -> bool:
    if not isinstance(entry, dict) or type(entry.get("id")) is not int or not isinstance(entry.get("content"), str):
        return False
    return all(isinstance(entry.get(flag, False), bool) for flag in (*FLAGS, "special"))


def _merges(model: Mapping[str, Any], path: Path) -> list[str]:
    """Older files hold "left right", newer ones pairs."""
    merges = model.get("merges", [])
    if isinstance(merges, list):
        kinds = set(map(type, merges))
        if kinds <= {str}:
            return cast(list[str], merges)
        if kinds == {list} and all(len(pair) == 2 and {type(part) for part in pair} == {str} for pair in merges):
            return [" ".join(pair) for pair in merges]
    raise ModelFileError(f"{path} is broken: its merges are not pairs of texts.")


def _token_list(files: _TokenizerFiles, size: int) -> list[str]:
    """Text of each id; ids that nobody names are [PAD7] and the like, which no text gives."""
    named = {token: text for text, token in files.vocabulary.items()}
    named |= {entry["id"]: entry["content"] for entry in files.added}
    if not named or min(named) < 0 or max(named) >= MAX_TOKENS:
        raise ModelFileError(f"{files.path} is broken: its ids are not within 0 to {MAX_TOKENS}.")
    taken = set(named.values())
    return [named.get(token) or _made_up(token, taken) for token in range(max(max(named) + 1, size))]


def _made_up(token: int, taken: set[str]) -> str:
    name = f"[PAD{token}]"
    return name if name not in taken else f"[PAD{token}, not {name}]"


def _is_byte_level(files: _TokenizerFiles) -> bool:
    """Whether bytes are written as letters; else as <0x0A>, and spaces as U+2581."""
    if files.model.get("byte_fallback") is True:
        return False
    parts = [*members(files.body.get("pre_tokenizer")), *members(files.body.get("decoder"))]
    if any(part.get("type") == "ByteLevel" for part in parts):
        return True
    raise UnsupportedModelError(f"{files.path} has neither byte-level tokens nor a byte fallback.")


def _adds_space(files: _TokenizerFiles) -> bool:
    """Whether a text is encoded as if a space stood before it."""
    for part in members(files.body.get("pre_tokenizer")):
        if part.get("type") == "Metaspace":
            return part.get("prepend_scheme", "always") != "never" and part.get("add_prefix_space") is not False
    return any(part.get("type") == "Prepend" for part in members(files.body.get("normalizer")))


def _rules(files: _TokenizerFiles, byte_level: bool) -> dict[str, MetadataValue]:
    """What GGUF has no key for, where that makes a difference."""
    flags = {entry["id"]: _flags(entry) for entry in files.added}
    normalizer = files.body.get("normalizer")
    pre_tokenizer = None if byte_level else files.body.get("pre_tokenizer")
    rules = TokenizerRules(normalizer, pre_tokenizer, files.model.get("ignore_merges") is True, flags)
    alike = len(set(flags.values())) <= 1 and not any(each.changes_text for each in flags.values())
    if byte_level and alike and not any(members(normalizer)):
        return {}
    written = rules.write()
    TokenizerRules.read(written)
    return {RULES_KEY: written}


def _flags(entry: Mapping[str, Any]) -> TokenFlags:
    """A flag that is not there is off, but ordinary tokens are looked for in the normalized text."""
    default = {"normalized": entry.get("special") is not True}
    return TokenFlags(**{flag: entry.get(flag, default.get(flag, False)) is True for flag in FLAGS})


def _types(files: _TokenizerFiles, tokens: list[str]) -> NDArray[np.int32]:
    types = np.full(len(tokens), TokenType.NORMAL, np.int32)
    known = {*files.vocabulary.values(), *(entry["id"] for entry in files.added)}
    types[[token for token in range(len(tokens)) if token not in known]] = TokenType.UNUSED
    if files.model.get("byte_fallback") is True:
        names = {f"<0x{byte:02X}>" for byte in range(256)}
        types[[token for text, token in files.vocabulary.items() if text in names]] = TokenType.BYTE
    for entry in files.added:
        types[entry["id"]] = TokenType.CONTROL if entry.get("special") is True else TokenType.USER_DEFINED
    unknown = files.model.get("unk_token")
    if isinstance(unknown, str) and unknown in files.vocabulary:
        types[files.vocabulary[unknown]] = TokenType.UNKNOWN
    return types


def _scores(merges: list[str], tokens: list[str]) -> NDArray[np.float32]:
    """SentencePiece merges the best score first: the earlier the first merge that gives a token, the better."""
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(merges):
        ranks.setdefault(merge.replace(" ", "", 1), rank)
    return np.array([-float(ranks[text]) if text in ranks else _NEVER_MERGED for text in tokens], np.float32)


def _special_ids(files: _TokenizerFiles, ids: Mapping[str, int]) -> dict[str, MetadataValue]:
    metadata: dict[str, MetadataValue] = {}
    for key, name in (("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "padding"), ("unk_token", "unknown")):
        token = ids.get(_token_text(files.config.get(key)))
        if token is not None:
            metadata[f"{PREFIX}{name}_token_id"] = token
    eos = metadata.get(PREFIX + "eos_token_id")
    ends = _generation_ends(files, ids)
    if eos is None and ends:
        metadata[PREFIX + "eos_token_id"] = eos = ends[0]
    texts = {token: text for text, token in ids.items()}
    # Two more have a key; those that every reader knows by their text need none.
    others = sorted((end for end in ends if end != eos), key=lambda end: texts[end] in END_MARKERS)
    return metadata | {f"{PREFIX}{key}_token_id": end for key, end in zip(("eot", "eom"), others, strict=False)}


def _generation_ends(files: _TokenizerFiles, ids: Mapping[str, int]) -> list[int]:
    ends = files.generation.get("eos_token_id")
    ends = ends if isinstance(ends, list) else [ends]
    return [end for end in ends if type(end) is int and 0 <= end < len(ids)]


def _token_text(value: object) -> str:
    """A special token is named by its text, or by an object that has it as content; "" for none."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def _added_ends(files: _TokenizerFiles, ids: Mapping[str, int]) -> dict[str, MetadataValue]:
    """Whether BOS and EOS are put around a text: by the configuration's word, else by the post-processor."""
    added = template_ends(files.body.get("post_processor"), files.path)
    metadata: dict[str, MetadataValue] = {}
    for key, text in zip(("bos", "eos"), added, strict=True):
        said = files.config.get(f"add_{key}_token")
        named = _token_text(files.config.get(f"{key}_token"))
        if said is not False and named:
            check_end(f"{key}_token", text, named, files.path)
        metadata[f"{PREFIX}add_{key}_token"] = (said if isinstance(said, bool) else text is not None) and (
            named or text
        ) in ids
        if text is not None and text in ids and not named:
            metadata[f"{PREFIX}{key}_token_id"] = ids[text]
    return metadata


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """chat_template.jinja wins over the configuration, where several templates may stand by name."""
    path = folder / "chat_template.jinja"
    if path.exists():
        return read_template(path)
    template = config.get("chat_template")
    if isinstance(template, list):
        named = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
        template = named[0].get("template") if named else None
    return template if isinstance(template, str) else None
