"""The family qwen3next (Qwen3-Next-80B-A3B): qwen35moe's formulas, with projections that are stored by key head.

    [b | a] = W_ba n, or of each key head [q | k | v of its V heads | z of its V heads] = W_in n in older files

V head h of Gated DeltaNet shares K head h // (value_heads / key_heads). Source: Qwen3-Next as transformers runs it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError
from engine.families.qwen35 import QWEN35MOE, read_delta_shape
from engine.weights.files.file_view import FileView
from engine.weights.files.gguf_tensors import kind_of
from engine.weights.files.weights_file import TensorInfo, WeightsFile, row_runs
from engine.weights.mapping.recipe import rows_by_key_head


class _Part(NamedTuple):
    """Some rows of a stored tensor."""

    source: str
    rows: NDArray[np.int64]  # where they stand


class _Grouped(NamedTuple):
    """A kind of tensor that has, for each key head, rows of several kinds."""

    shares: tuple[int, ...]  # rows of each kind
    parts: dict[str, tuple[int, ...]]  # tensors that qwen35moe has instead: of which kinds


def ungrouped(file: WeightsFile) -> WeightsFile:
    """The model with the projections that qwen35moe has. Raises ModelFileError where their shapes cannot be."""
    shape = read_delta_shape(file)
    repeats = shape.value_heads // shape.key_heads
    values = repeats * shape.value_dim
    kinds = {
        "ssm_in.weight": _Grouped(
            (shape.key_dim, shape.key_dim, values, values), {"attn_qkv.weight": (0, 1, 2), "attn_gate.weight": (3,)}
        ),
        "ssm_ba.weight": _Grouped((repeats, repeats), {"ssm_beta.weight": (0,), "ssm_alpha.weight": (1,)}),
    }
    parts: dict[str, _Part] = {}
    for name, info in file.tensors.items():
        grouped = kinds.get(kind_of(name))
        if grouped is None:
            continue
        _check(file, info, shape.key_heads * sum(grouped.shares))
        block = name.removesuffix(kind_of(name))
        for part, wanted in grouped.parts.items():
            parts[block + part] = _Part(name, rows_by_key_head(shape.key_heads, grouped.shares, wanted))
    return _UngroupedFile(file, parts)


def _check(file: WeightsFile, info: TensorInfo, rows: int) -> None:
    if len(info.shape) != 2 or info.shape[0] != rows:
        raise ModelFileError(
            f"{file.path_of(info.name)} is broken: {info.name} has shape {info.shape}, whose rows should be {rows}."
        )


class _UngroupedFile(FileView):
    def __init__(self, file: WeightsFile, parts: Mapping[str, _Part]) -> None:
        sources = {part.source for part in parts.values()}
        kept = {name: info for name, info in file.tensors.items() if name not in sources}
        made = {name: _info(name, part, file.tensors[part.source]) for name, part in parts.items()}
        super().__init__(file, tensors=kept | made)
        self._parts = parts

    def raw(self, name: str) -> NDArray[np.uint8]:
        return self.rows(name, 0, len(self._parts[name].rows)) if name in self._parts else super().raw(name)

    def rows(self, name: str, first: int, count: int) -> NDArray[np.uint8]:
        if name not in self._parts:
            return super().rows(name, first, count)
        part = self._parts[name]
        runs = row_runs(part.rows[first : first + count])
        return np.concatenate([super(_UngroupedFile, self).rows(part.source, at, many) for at, many in runs])


def _info(name: str, part: _Part, source: TensorInfo) -> TensorInfo:
    row_bytes = source.nbytes // source.shape[0]
    return TensorInfo(name, (len(part.rows), source.shape[1]), source.type, 0, len(part.rows) * row_bytes)


QWEN3NEXT = replace(QWEN35MOE, view=ungrouped, has_towers=False)
