"""Builds safetensors files byte by byte, and whole folders of tiny models, so that tests can break any part of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = Mapping[str, NDArray[Any]]
_DTYPES = {"float32": "F32", "float16": "F16", "uint16": "BF16", "int8": "I8"}


def safetensors_bytes(tensors: Tensors, **entries: object) -> bytes:
    """A sound file of the tensors, where uint16 stands for BF16; `entries` replace what the header says of them."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, values in tensors.items():
        end = position + values.nbytes
        header[name] = {
            "dtype": _DTYPES[values.dtype.name],
            "shape": list(values.shape),
            "data_offsets": [position, end],
        }
        position = end
    header |= entries
    return with_header(json.dumps(header).encode(), b"".join(values.tobytes() for values in tensors.values()))


def with_header(header: bytes, data: bytes = b"", *, length: int | None = None) -> bytes:
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


def write_shards(folder: Path, shards: Mapping[str, Tensors], *, index: Mapping[str, str] | None = None) -> None:
    """Write the files, and the index that says which tensor is in which."""
    places = {name: file for file, tensors in shards.items() for name in tensors}
    for file, tensors in shards.items():
        (folder / file).write_bytes(safetensors_bytes(tensors))
    content = {"metadata": {}, "weight_map": places if index is None else index}
    (folder / "model.safetensors.index.json").write_text(json.dumps(content))


def write_folder(folder: Path, config: Mapping[str, object], tensors: Tensors) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    return folder


def stored_tensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """All tensors of a file of float32."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8:start])
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(content, np.float32, offset=start)[
            entry["data_offsets"][0] // 4 : entry["data_offsets"][1] // 4
        ].reshape(entry["shape"])
        for name, entry in header.items()
    }


LLAMA_CONFIG: dict[str, object] = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "intermediate_size": 48,
    "vocab_size": 64,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}


def llama_tensors(seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """The tensors of LLAMA_CONFIG under Hugging Face's names."""
    layer = "model.layers.0."
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (64, 32),
        "model.norm.weight": (32,),
        layer + "input_layernorm.weight": (32,),
        layer + "post_attention_layernorm.weight": (32,),
        layer + "self_attn.q_proj.weight": (32, 32),
        layer + "self_attn.k_proj.weight": (16, 32),
        layer + "self_attn.v_proj.weight": (16, 32),
        layer + "self_attn.o_proj.weight": (32, 32),
        layer + "mlp.gate_proj.weight": (48, 32),
        layer + "mlp.up_proj.weight": (48, 32),
        layer + "mlp.down_proj.weight": (32, 48),
    }
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper halves, cut off."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)
