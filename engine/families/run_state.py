"""The scratch of a forward pass: all arrays that ops read and write, allocated once at load."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kernels.activations import Activations
from kernels.kv_cache import BLOCK_TOKENS, STEP
from kernels.memory import zeroed


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How large a step, and how much memory of keys and values, a program is built for."""

    max_rows: int
    max_logit_rows: int
    n_blocks: int
    context_length: int  # tokens of the longest sequence
    threads: int


@dataclass(slots=True, kw_only=True)
class StepInputs:
    """One step's record and the arrays that it points to; the runner fills them before each run."""

    record: np.ndarray
    positions: NDArray[np.int64]
    tables: NDArray[np.uint64]
    logit_index: NDArray[np.int64]
    tile_rows: NDArray[np.int64]

    @classmethod
    def allocate(cls, capacity: Capacity) -> "StepInputs":
        """Make the arrays and write their addresses into the record."""
        inputs = cls(
            record=np.zeros(1, STEP),
            positions=np.zeros(capacity.max_rows, np.int64),
            tables=np.zeros(capacity.max_rows, np.uint64),
            logit_index=np.zeros(capacity.max_logit_rows, np.int64),
            tile_rows=np.zeros((capacity.max_rows, 2), np.int64),
        )
        for name in ("positions", "tables", "logit_index", "tile_rows"):
            inputs.record[name] = getattr(inputs, name).ctypes.data
        return inputs

    def address(self, name: str) -> int:
        """Return the address of a field of the record."""
        fields = STEP.fields
        assert fields is not None
        return int(self.record.ctypes.data) + int(fields[name][1])


@dataclass(slots=True, kw_only=True)
class RunState:
    """Activations of one step, and the keys and values of all sequences."""

    hidden: NDArray[np.float32]  # [max_rows, hidden], the residual stream
    logits: NDArray[np.float32]  # [max_logit_rows, vocabulary padded to 16]
    packed: Activations
    inputs: StepInputs
    buffers: dict[str, NDArray[np.float32]] = field(default_factory=dict)  # [max_rows, width] each
    caches: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = field(default_factory=list)  # keys, values a layer
    keep: list[object] = field(default_factory=list)  # what addresses in the program point to

    def add_cache(self, n_blocks: int, kv_heads: int, head_dim: int) -> tuple[int, int]:
        """Allocate one layer's blocks of keys and values; returns their addresses."""
        shape = (n_blocks, kv_heads, head_dim * BLOCK_TOKENS)
        keys, values = zeroed(shape, np.float32), zeroed(shape, np.float32)
        self.caches.append((keys, values))
        return keys.ctypes.data, values.ctypes.data

    def hold(self, array: np.ndarray) -> int:
        """Keep an array alive as long as the program, and return its address."""
        self.keep.append(array)
        return int(array.ctypes.data)
