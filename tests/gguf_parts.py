"""Writes other GGUF files out of one: with some of its tensors, and its metadata changed."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.tiny.models import add_metadata


def write_part(
    source: Path,
    target: Path,
    wanted: Callable[[str], bool],
    changes: Mapping[str, object] | None = None,
    *,
    added: Mapping[str, object] = MappingProxyType({}),
    tensors: Mapping[str, NDArray[np.float32]] = MappingProxyType({}),
    tensors_a_file: int = 0,
) -> Path:
    """Write the tensors whose names are wanted; changes: of metadata, named without the architecture, None for gone.

    added, tensors: metadata under full names, and tensors, that the source does not have.
    tensors_a_file: of a split model, whose files are NAME-00001-of-00003.gguf and so on; 0: it is not split.
    """
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    changed = {f"{architecture}.{key}": value for key, value in (changes or {}).items()}
    writer = gguf.GGUFWriter(target, architecture, split_max_tensors=tensors_a_file)
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = changed.get(key, field.contents())
        if value is not None:
            writer.add_key_value(key, value, field.types[0], field.types[-1] if len(field.types) > 1 else None)
    add_metadata(writer, added)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    for tensor in reader.tensors:
        if wanted(tensor.name):
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def part_draft(source: Path, folder: Path, layers: int, *, embeddings: bool = True) -> tuple[Path, Path]:
    """The model of so many layers as two files, trunk and draft head, as the converters of llama.cpp part it.

    embeddings: the file of the draft head has the embeddings, the last norm and the head too.
    """
    draft = f"blk.{layers}."
    trunk = write_part(
        source,
        folder / "model.gguf",
        lambda name: not name.startswith(draft),
        {"block_count": layers, "nextn_predict_layers": None},
    )
    own = (draft, "token_embd", "output") if embeddings else (draft,)
    return trunk, write_part(source, folder / "mtp-model.gguf", lambda name: name.startswith(own))
