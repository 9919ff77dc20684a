"""A long prompt arrives on running sequences of llama.cpp; runs in the environment that build_llamacpp.sh makes.

    python -m benchmarks.llamacpp_arrival MODEL.gguf --streams 7 --prompt-tokens 4000

Steps are made up as llama-server makes them: one row for each sequence that decodes, then as much of the prompt as
n_batch (2048) has room for, which llama.cpp computes in parts of n_ubatch (512) before anybody gets a token. Prints one
JSON line: seconds, as benchmarks/serving/arrival.py takes them.
"""

import argparse
import json
import time
from collections.abc import Sequence

import llama_cpp
import numpy as np

from benchmarks.llamacpp_baseline import Context, Row, show_errors

_CONTEXT_ROWS = 32  # of each stream's prompt


class Server:
    """Streams of random tokens on one context, and a clock."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._streams = arguments.streams
        self._rows = arguments.n_batch
        steps = arguments.steps * 2 + arguments.prompt_tokens // max(1, arguments.n_batch - arguments.streams) + 2
        room = arguments.prompt_tokens + arguments.streams * (_CONTEXT_ROWS + steps) + 64
        self.context = Context(arguments, sequences=arguments.streams + 1, tokens=room)
        self._tokens = np.random.default_rng(1).integers(0, self.context.vocabulary, 100_000).tolist()
        self._position = 0  # of the streams' next tokens

    def begin(self) -> None:
        """Forget everything, and prefill the streams."""
        self.context.clear()
        self._position = _CONTEXT_ROWS
        for stream in range(self._streams):
            rows = [(token, place, stream) for place, token in enumerate(self._tokens[stream * 97 :][:_CONTEXT_ROWS])]
            self.context.run(rows, [place == _CONTEXT_ROWS - 1 for place in range(_CONTEXT_ROWS)])

    def step(self, prompt: Sequence[Row] = (), *, is_last: bool = False) -> float:
        """A token of every stream beside some rows of the prompt; the seconds that it takes."""
        rows = [(self._tokens[5000 + self._position * 7 + s], self._position, s) for s in range(self._streams)]
        self._position += 1
        return self._timed([*rows, *prompt], [True] * len(rows) + _last_of(prompt, is_last))

    def arrival(self, count: int, *, beside_streams: bool) -> list[float]:
        """Compute a prompt of `count` tokens; the seconds of each step until its first token."""
        seconds = []
        room = self._rows - (self._streams if beside_streams else 0)
        for start in range(0, count, room):
            end = min(start + room, count)
            prompt = [(self._tokens[20_000 + place], place, self._streams) for place in range(start, end)]
            if beside_streams:
                seconds.append(self.step(prompt, is_last=end == count))
            else:
                seconds.append(self._timed(prompt, _last_of(prompt, end == count)))
        return seconds

    def _timed(self, rows: Sequence[Row], wanted: Sequence[bool]) -> float:
        begin = time.perf_counter()
        self.context.run(rows, wanted)
        for row, wants in enumerate(wanted):
            if wants:
                self.context.logits(row).argmax()
        return time.perf_counter() - begin


def _last_of(prompt: Sequence[Row], is_last: bool) -> list[bool]:
    return [is_last and index == len(prompt) - 1 for index in range(len(prompt))]


def measure(arguments: argparse.Namespace) -> dict[str, object]:
    """Alone and together in turn, after one time that does not count."""
    server = Server(arguments)
    found: dict[str, list[float]] = {name: [] for name in ("alone", "together", "before", "during", "worst")}
    for repeat in range(arguments.repeats + 1):
        server.context.clear()
        alone = sum(server.arrival(arguments.prompt_tokens, beside_streams=False))
        server.begin()
        before = [server.step() for _ in range(arguments.steps)]
        during = server.arrival(arguments.prompt_tokens, beside_streams=True)
        if repeat:
            found["alone"].append(alone)
            found["together"].append(sum(during))
            found["before"] += before
            found["during"] += during
            found["worst"].append(max(during))
    told = {"n_batch": arguments.n_batch, "flash": arguments.flash, "threads": arguments.threads}
    return {**told, "llama_cpp": llama_cpp.__version__, **found}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    numbers = {"streams": 7, "prompt-tokens": 4000, "repeats": 3, "steps": 32, "threads": 2, "n-batch": 2048}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default, help="[%(default)s]")
    parser.add_argument("--flash", type=int, choices=(0, 1), default=0)
    parser.add_argument("--kv", choices=("f16", "f32"), default="f16")
    arguments = parser.parse_args()
    llama_cpp.llama_log_set(show_errors, None)
    print(json.dumps(measure(arguments)))


if __name__ == "__main__":
    main()
