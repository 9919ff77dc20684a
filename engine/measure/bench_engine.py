"""Measures the engine without server or sampler: prefill and decode, as JSON-ready lines, and a ledger of each."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.api.config import EngineConfig
from engine.errors import OctavoError
from engine.loading.load_runner import LoadedRunner, load_runner
from engine.loading.runner import Runner
from engine.machine import available_memory
from engine.measure.ledger import Entry, Ledger
from engine.measure.plain_tables import plain_tables
from engine.run.runner_protocol import SequenceRows
from engine.version import VERSION
from engine.weights.files.weights_file import WeightsFile
from kernels.run.probes import read_bandwidth

_WARM_UP_STEPS = 4
_BANDWIDTH_MEGABYTES = 1024
Line = dict[str, object]
Step = Callable[[], object]


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
    kv_type: str = "f16"
    ledger: bool = False  # also time each op, over as many steps of their own


def bench_engine(file: WeightsFile, options: BenchOptions) -> Iterator[Line]:
    """Yield one line a measurement, and what the machine can read; with a ledger, a line for each of its entries."""
    loaded = load_runner(
        file,
        EngineConfig(lanes=max(options.batch), threads=options.threads, isa=options.isa, kv_type=options.kv_type),
        lambda stage, done: None,
    )
    runner = loaded.runner
    common: Line = {
        "engine": "octavo",
        "version": VERSION,
        "threads": runner.threads,
        "isa": loaded.isa,
        "crossover": loaded.crossover,
        "kv_type": options.kv_type,
    }
    try:
        _check_sizes(runner, options)
        megabytes = min(_BANDWIDTH_MEGABYTES, max(16, available_memory() // 4 >> 20))
        tokens = np.random.default_rng(1).integers(0, runner.vocab_size, 100_000).tolist()
        yield {**common, "what": "bandwidth", "gb_s": read_bandwidth(runner.team, megabytes) / 1e9}
        for line in _measurements(loaded, options, tokens):
            yield {**common, **line}
    finally:
        runner.close()


def _measurements(loaded: LoadedRunner, options: BenchOptions, tokens: list[int]) -> Iterator[Line]:
    prefills = [_prefill(loaded.runner, options.prompt, tokens)] * (options.repeats + 1)
    yield _prefill_line(options.prompt, _seconds(prefills))
    if options.ledger:
        yield from _ledger_lines(loaded.runner, prefills, 1, {"n": options.prompt})
    for batch in options.batch:
        steps = _decode_steps(loaded.runner, options, batch, tokens)
        yield _decode_line(loaded, options.ctx0, batch, _seconds(steps))
        if options.ledger:
            warm_up = min(_WARM_UP_STEPS, len(steps) - 1)
            yield from _ledger_lines(loaded.runner, steps, warm_up, {"B": batch})


def _check_sizes(runner: Runner, options: BenchOptions) -> None:
    longest = max(options.prompt, options.ctx0 + options.gen)
    if longest > runner.context_length:
        raise OctavoError(f"The measurement needs {longest} tokens, but the context holds {runner.context_length}.")
    needed = max(options.batch) * -(-(options.ctx0 + options.gen) // runner.block_tokens)
    if any(needed > group.n_blocks for group in runner.groups if not group.window):
        raise OctavoError("The measurement needs more memory for keys and values than is free; make it smaller.")


def _seconds(steps: Sequence[Step]) -> list[float]:
    """Run the steps in order; the time of each."""
    seconds = []
    for step in steps:
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    return seconds


def _prefill(runner: Runner, prompt: int, tokens: list[int]) -> Step:
    """What feeds a whole prompt."""
    tables = plain_tables(runner, prompt)

    def feed() -> None:
        for start in range(0, prompt, runner.max_rows):
            end = min(start + runner.max_rows, prompt)
            runner.run([SequenceRows(tokens[start:end], start, tables, int(end == prompt))])

    return feed


def _prefill_line(prompt: int, seconds: list[float]) -> Line:
    median = float(np.median(seconds[1:]))
    return {"what": "prefill", "n": prompt, "tok_s": prompt / median, "best": prompt / min(seconds[1:])}


def _decode_steps(runner: Runner, options: BenchOptions, batch: int, tokens: list[int]) -> list[Step]:
    """Feed `batch` contexts, and return the decode steps that follow; they may run more than once."""
    length = options.ctx0 + options.gen
    tables = [plain_tables(runner, length, sequence=s, sequences=batch) for s in range(batch)]
    for sequence, own in enumerate(tables):
        _feed_context(runner, tokens[sequence * 97 :], options.ctx0, own)

    def step(index: int) -> Step:
        rows = [
            SequenceRows([tokens[5000 + index * batch + s]], options.ctx0 + index, own, 1)
            for s, own in enumerate(tables)
        ]

        def decode() -> None:
            runner.run(rows)
            _ = runner.likeliest

        return decode

    return [step(index) for index in range(options.gen)]


def _decode_line(loaded: LoadedRunner, ctx0: int, batch: int, seconds: list[float]) -> Line:
    timed = seconds[_WARM_UP_STEPS:] or seconds
    median = float(np.median(timed))
    return {
        "what": "decode",
        "B": batch,
        "ctx0": ctx0,
        "ms_step": median * 1e3,
        "tok_s": batch / median,
        "best": batch / min(timed),
        "gb_s": loaded.weights.of_step(batch) / median / 1e9,
    }


def _feed_context(runner: Runner, tokens: list[int], count: int, tables: tuple[list[int], ...]) -> None:
    for start in range(0, count, runner.max_rows):
        part = tokens[start : min(start + runner.max_rows, count)]
        runner.run([SequenceRows(part, start, tables, 0)])


def _ledger_lines(runner: Runner, steps: Sequence[Step], warm_up: int, size: dict[str, int]) -> Iterator[Line]:
    """Run the steps once more under a ledger; yields its entries, then their sum."""
    with Ledger(runner) as ledger:
        for index, step in enumerate(steps):
            if index == warm_up:
                ledger.forget()
            ledger.step(step)
    for entry in ledger.entries():
        yield {"what": "ledger", **size, **_entry_line(entry, ledger.step_ms), **_rates(entry, size)}
    yield {"what": "ledger total", **size, "ms_step": ledger.step_ms, "coverage": ledger.coverage}


def _entry_line(entry: Entry, step_ms: float) -> Line:
    """An entry in ms a step."""
    line: Line = {"kind": entry.kind, "op": entry.name, "ops": entry.ops, "ms": entry.total}
    return line | {"work_ms": entry.work, "wait_ms": entry.wait, "share": entry.total / step_ms}


def _rates(entry: Entry, size: dict[str, int]) -> Line:
    """The rates of a matmul over its work and wait; in a prefill the head sees one row, and weights are read often."""
    rows = size.get("B") or (1 if entry.kind == "head" else size["n"])
    counts = {"gb_s": entry.bytes_read(rows) if "B" in size else None, "gop_s": entry.operations(rows)}
    return {name: count / entry.total / 1e6 for name, count in counts.items() if count and entry.total}
