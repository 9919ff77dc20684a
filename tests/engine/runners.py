"""Loads runners for tests, and feeds them sequences in different ways."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.api.config import EngineConfig
from engine.loading.load_runner import load_runner
from engine.loading.runner import Runner
from engine.run.runner_protocol import SequenceRows
from engine.weights.files.weights_file import WeightsFile
from engine.weights.open_weights import open_weights

Float32 = NDArray[np.float32]
GOLDEN = Path(__file__).parents[1] / "golden"


@contextmanager
def loaded(
    path: Path,
    *,
    threads: int = 1,
    isa: str | None = None,
    activations: str = "int8",
    kv_type: str = "f16",
    rows: int = 512,
    lanes: int = 8,
    opened: Callable[[Path], WeightsFile] = open_weights,
) -> Iterator[Runner]:
    """A runner that can give the logits of every row of a step of up to `rows` rows, of the file as it is `opened`."""
    options = EngineConfig(
        lanes=lanes,
        threads=threads,
        isa=isa,
        activations=activations,
        kv_type=kv_type,
        max_rows=rows,
        max_logit_rows=rows,
    )
    with opened(path) as file:
        runner = load_runner(file, options, lambda stage, done: None).runner
        try:
            yield runner
        finally:
            runner.close()


def blocks_for(tokens: int) -> int:
    return -(-tokens // 64)


def feed(runner: Runner, tokens: Sequence[int], table: Sequence[int], chunk: int, start: int = 0) -> Float32:
    """Feed a sequence alone, `chunk` tokens a step; returns the logits of every token, [tokens, vocabulary].

    Each group of layers has its blocks at the same places.
    """
    tables = (table,) * len(runner.groups)
    parts = [
        runner.run([SequenceRows(tokens[at : at + chunk], start + at, tables, len(tokens[at : at + chunk]))]).copy()
        for at in range(0, len(tokens), chunk)
    ]
    return np.concatenate(parts)


def random_tokens(runner: Runner, count: int, seed: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, runner.vocab_size, count)]


def same_bits(a: Float32, b: Float32) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()
