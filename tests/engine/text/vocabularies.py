"""Real vocabularies from data/, and two tiny ones made by hand."""

import json
import lzma
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from engine.text.bpe import letter_bytes
from engine.text.tokenizer import Tokenizer

DATA = Path(__file__).with_name("data")
FILES = {
    "gpt-2": "gpt-2",
    "smollm": "smollm",
    "qwen2": "qwen",
    "qwen35": "qwen",
    "llama-bpe": "llama-bpe",
    "llama-spm": "spm",
    "phi-3": "spm",
    "starcoder": "starcoder",
    "deepseek-coder": "deepseek-coder",
    "deepseek-llm": "deepseek-llm",
}
CONTROL, USER, UNUSED, BYTE = 3, 4, 5, 6


@cache
def load(name: str) -> Any:
    """The JSON of a data file."""
    return json.loads(lzma.decompress((DATA / f"{name}.json.xz").read_bytes()))


def model(name: str) -> dict[str, Any]:
    """What data/ has of one model: metadata and expected ids."""
    return dict(load(FILES[name])["models"][name])


def metadata(name: str) -> dict[str, object]:
    """The GGUF metadata of a real model's tokenizer."""
    shared, own = load(FILES[name]), model(name)
    changed = {int(token): text for token, text in own["changed_tokens"].items()}
    tokens: list[str] = shared["tokens"] + [""] * (
        max([len(shared["tokens"]) - 1, *changed]) + 1 - len(shared["tokens"])
    )
    for token, text in changed.items():
        tokens[token] = text
    values: dict[str, object] = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [own["types"].get(str(token), 1) for token in range(len(tokens))],
        **own["metadata"],
    }
    if own["scores"] is not None:
        values["tokenizer.ggml.scores"] = [float(own["scores"].get(str(i), 259 - i)) for i in range(len(tokens))]
    if shared["merges"]:
        steps, lefts = shared["merges"]
        merged = (tokens[token] for token in accumulate(steps))
        values["tokenizer.ggml.merges"] = [f"{t[:left]} {t[left:]}" for t, left in zip(merged, lefts, strict=True)]
    return values


@cache
def tokenizer(name: str) -> Tokenizer:
    return Tokenizer.from_metadata(metadata(name))


def tiny_bpe_metadata(**changes: object) -> dict[str, object]:
    """Bytes, a few merges, ChatML's control tokens and a user-defined <think>."""
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w"]
    tokens = [*letter_bytes(), *(merge.replace(" ", "") for merge in merges), "<|im_start|>", "<|im_end|>", "<think>"]
    values: dict[str, object] = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": [1] * (len(tokens) - 3) + [CONTROL, CONTROL, USER],
        "merges": merges,
        "bos_token_id": tokens.index("<|im_start|>"),
        "eos_token_id": tokens.index("<|im_end|>"),
    }
    return {f"tokenizer.ggml.{key}": value for key, value in (values | changes).items() if value is not None}


def tiny_spm_metadata(pieces: dict[str, float], **changes: object) -> dict[str, object]:
    """Control tokens, all byte tokens, then these pieces with their scores."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    values: dict[str, object] = {
        "model": "llama",
        "tokens": tokens,
        "token_type": [2, CONTROL, CONTROL, *[BYTE] * 256, *[1] * len(pieces)],
        "scores": [0.0] * 259 + list(pieces.values()),
    }
    return {f"tokenizer.ggml.{key}": value for key, value in (values | changes).items() if value is not None}
