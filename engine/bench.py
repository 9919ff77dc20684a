"""Measures the engine without server or sampler: prefill, and decode for several batch sizes, as JSON-ready lines."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.errors import OctavoError
from engine.families.loaded import LoadedRunner, RunnerOptions, load_runner
from engine.machine import available_memory
from engine.runner import Runner
from engine.runner_protocol import SequenceRows
from engine.version import VERSION
from engine.weights.gguf import GgufFile
from kernels.bandwidth import read_bandwidth

_WARM_UP_STEPS = 4
_BANDWIDTH_MEGABYTES = 1024
Line = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """What to measure."""

    batch: Sequence[int]  # numbers of sequences that decode at once
    prompt: int  # tokens of the prefill measurement
    gen: int  # decode steps that are timed
    ctx0: int  # tokens of context before decoding is timed
    repeats: int
    threads: int | None
    isa: str | None


def bench_engine(file: GgufFile, options: BenchOptions) -> Iterator[Line]:
    """Yield one line a measurement, with the keys of the llama.cpp baseline, plus what the machine can read."""
    loaded = load_runner(
        file,
        RunnerOptions(lanes=max(options.batch), threads=options.threads, isa=options.isa),
        lambda stage, done: None,
    )
    runner = loaded.runner
    common: Line = {"engine": "octavo", "version": VERSION, "threads": runner.threads, "isa": loaded.isa}
    try:
        _check_sizes(runner, options)
        megabytes = min(_BANDWIDTH_MEGABYTES, max(16, available_memory() // 4 >> 20))
        tokens = np.random.default_rng(1).integers(0, runner.vocab_size, 100_000).tolist()
        yield {**common, "what": "bandwidth", "gb_s": read_bandwidth(runner.team, megabytes) / 1e9}
        yield {**common, **_prefill(runner, options, tokens)}
        for batch in options.batch:
            yield {**common, **_decode(loaded, options, batch, tokens)}
    finally:
        runner.close()


def _check_sizes(runner: Runner, options: BenchOptions) -> None:
    longest = max(options.prompt, options.ctx0 + options.gen)
    if longest > runner.context_length:
        raise OctavoError(f"The measurement needs {longest} tokens, but the context holds {runner.context_length}.")
    if max(options.batch) * _blocks_for(runner, options.ctx0 + options.gen) > runner.n_blocks:
        raise OctavoError("The measurement needs more memory for keys and values than is free; make it smaller.")


def _blocks_for(runner: Runner, tokens: int) -> int:
    return -(-tokens // runner.block_tokens)


def _prefill(runner: Runner, options: BenchOptions, tokens: list[int]) -> Line:
    table = list(range(_blocks_for(runner, options.prompt)))
    seconds = []
    for _ in range(options.repeats + 1):
        begin = time.perf_counter()
        for start in range(0, options.prompt, runner.max_rows):
            end = min(start + runner.max_rows, options.prompt)
            runner.run([SequenceRows(tokens[start:end], start, table, end == options.prompt)])
        seconds.append(time.perf_counter() - begin)
    median = float(np.median(seconds[1:]))
    return {
        "what": "prefill",
        "n": options.prompt,
        "tok_s": options.prompt / median,
        "best": options.prompt / min(seconds[1:]),
    }


def _decode(loaded: LoadedRunner, options: BenchOptions, batch: int, tokens: list[int]) -> Line:
    runner, per_sequence = loaded.runner, _blocks_for(loaded.runner, options.ctx0 + options.gen)
    tables = [list(range(s * per_sequence, (s + 1) * per_sequence)) for s in range(batch)]
    for sequence, table in enumerate(tables):
        _feed_context(runner, tokens[sequence * 97 :], options.ctx0, table)
    seconds = []
    for step in range(options.gen):
        rows = [
            SequenceRows([tokens[5000 + step * batch + s]], options.ctx0 + step, table, True)
            for s, table in enumerate(tables)
        ]
        begin = time.perf_counter()
        runner.run(rows).argmax(axis=1)
        seconds.append(time.perf_counter() - begin)
    timed = seconds[_WARM_UP_STEPS:] or seconds
    median = float(np.median(timed))
    return {
        "what": "decode",
        "B": batch,
        "ctx0": options.ctx0,
        "ms_step": median * 1e3,
        "tok_s": batch / median,
        "best": batch / min(timed),
        "gb_s": loaded.bytes_per_token / median / 1e9,
    }


def _feed_context(runner: Runner, tokens: list[int], count: int, table: list[int]) -> None:
    for start in range(0, count, runner.max_rows):
        part = tokens[start : min(start + runner.max_rows, count)]
        runner.run([SequenceRows(part, start, table, False)])
