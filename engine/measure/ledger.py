"""The ledger of a step: what each op of the program takes, summed by name, and the rest; the parts make the whole.

Thread 0's clock stands around every op: its work, and its wait for the others at the barrier after it. What a step
takes beyond the program is the embedding look-up, which is timed, and Python.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from engine.loading.runner import Runner
from engine.weights.files.gguf_tensors import GGML_TYPES
from engine.weights.files.weights_file import WeightBytes

# The layer's number in the name of an op: ops of all layers are summed.
_LAYER = re.compile(r"\bblk\.\d+\.")
# How the name of a matmul ends: weight type, of how many experts a row reads how many, outputs x columns.
_SHAPE = re.compile(r" (\w+) (?:(\d+)/(\d+) )?(\d+)x(\d+)$")
_BY_NAME = {ggml_type.name: ggml_type for ggml_type in GGML_TYPES.values()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the ledger, in milliseconds a step."""

    name: str
    ops: int  # of this name in the program; 0 for what is no op
    work: float
    wait: float

    @property
    def kind(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def total(self) -> float:
        return self.work + self.wait

    def bytes_read(self, rows: int) -> float | None:
        """Bytes of weights that a step of `rows` rows reads here, as the file holds them; None for what reads none.

        Where they are experts', it is the number to expect: see WeightBytes.
        """
        shape = self._shape()
        if shape is None or shape.type not in _BY_NAME:
            return None
        ggml_type = _BY_NAME[shape.type]
        nbytes = self.ops * shape.outputs * shape.columns // ggml_type.block_elements * ggml_type.block_bytes
        return WeightBytes(0, shape.experts * nbytes, shape.experts, shape.active).of_step(rows)

    def operations(self, rows: int) -> int | None:
        """Multiplications and additions of a step with `rows` rows; None for what is no matmul."""
        shape = self._shape()
        return None if shape is None else 2 * rows * self.ops * shape.active * shape.outputs * shape.columns

    def _shape(self) -> "_Shape | None":
        found = _SHAPE.search(self.name)
        if found is None:
            return None
        return _Shape(found[1], int(found[2] or 1), int(found[3] or 1), int(found[4]), int(found[5]))


class _Shape(NamedTuple):
    """What a matmul multiplies; a dense matrix is the only expert."""

    type: str
    active: int
    experts: int
    outputs: int
    columns: int


class Ledger:
    """Times a runner's steps while it is entered; ordinary steps before and after pay nothing."""

    def __init__(self, runner: Runner) -> None:
        self._runner, self._embed = runner, runner.embed
        self._times = np.zeros((len(runner.op_names), 2), np.int64)
        self._embed_ns = self._steps_ns = self._steps = 0

    def __enter__(self) -> Self:
        self._runner.op_times, self._runner.embed = self._times, self._timed_embed
        return self

    def __exit__(self, *fault: object) -> None:
        self._runner.op_times, self._runner.embed = None, self._embed

    def step(self, run: Callable[[], object]) -> None:
        """Run one step and add it."""
        begin = time.monotonic_ns()
        run()
        self._steps_ns += time.monotonic_ns() - begin
        self._steps += 1

    def forget(self) -> None:
        """Begin anew, after steps that warmed up."""
        self._times[:] = 0
        self._embed_ns = self._steps_ns = self._steps = 0

    @property
    def step_ms(self) -> float:
        """The mean time of a step."""
        return self._per_step(self._steps_ns)

    @property
    def coverage(self) -> float:
        """The share of the step that ops and the embedding account for; the rest is Python's."""
        return float(self._times.sum() + self._embed_ns) / self._steps_ns

    def entries(self) -> list[Entry]:
        """The lines, the longest first; their totals sum to the step."""
        sums: dict[str, list[int]] = {}
        for name, (work, wait) in zip(self._runner.op_names, self._times.tolist(), strict=True):
            line = sums.setdefault(_LAYER.sub("", name), [0, 0, 0])
            line[0], line[1], line[2] = line[0] + 1, line[1] + work, line[2] + wait
        sums["embedding"] = [0, self._embed_ns, 0]
        sums["python"] = [0, self._steps_ns - self._embed_ns - int(self._times.sum()), 0]
        entries = [
            Entry(name=name, ops=ops, work=self._per_step(work), wait=self._per_step(wait))
            for name, (ops, work, wait) in sums.items()
        ]
        return sorted(entries, key=lambda entry: -entry.total)

    def _per_step(self, nanoseconds: int) -> float:
        return nanoseconds / 1e6 / self._steps

    def _timed_embed(self, tokens: list[int], output: NDArray[np.float32]) -> None:
        begin = time.monotonic_ns()
        self._embed(tokens, output)
        self._embed_ns += time.monotonic_ns() - begin
