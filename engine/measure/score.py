"""Logits of every token of a prompt, for comparing numerics."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.api.config import EngineConfig
from engine.errors import OctavoError
from engine.loading.load_runner import load_runner
from engine.measure.plain_tables import plain_tables
from engine.run.runner_protocol import SequenceRows
from engine.weights.files.weights_file import WeightsFile


def score_tokens(
    file: WeightsFile,
    tokens: Sequence[int],
    *,
    chunk: int = 64,
    isa: str | None = None,
    threads: int | None = None,
    activations: str = "int8",
    kv_type: str = "f16",
) -> NDArray[np.float32]:
    """Return float32 [tokens, vocabulary]: row t holds the logits after token t; fed `chunk` tokens a step."""
    if not 1 <= chunk <= 4096:
        raise OctavoError(f"--chunk {chunk} is out of range; give a number from 1 to 4096.")
    options = EngineConfig(
        lanes=1,
        isa=isa,
        threads=threads,
        activations=activations,
        kv_type=kv_type,
        max_rows=chunk,
        max_logit_rows=chunk,
    )
    runner = load_runner(file, options, lambda stage, done: None).runner
    try:
        _check(tokens, runner.vocab_size, runner.context_length)
        tables = plain_tables(runner, len(tokens))
        starts = range(0, len(tokens), chunk)
        steps = [SequenceRows(part := tokens[start : start + chunk], start, tables, len(part)) for start in starts]
        parts = [runner.run([rows]).copy() for rows in steps]
    finally:
        runner.close()
    return np.concatenate(parts)


def _check(tokens: Sequence[int], vocabulary: int, context: int) -> None:
    if not tokens:
        raise OctavoError("There are no tokens to score; give ids like 100,101,102.")
    if not 0 <= min(tokens) <= max(tokens) < vocabulary:
        raise OctavoError(f"A token id is out of range; this model's ids are 0 to {vocabulary - 1}.")
    if len(tokens) > context:
        raise OctavoError(f"{len(tokens)} tokens do not fit the context of {context}.")
