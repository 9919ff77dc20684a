"""How far int8 activations move the next token's distribution: Octavo's and llama.cpp's, from the same reference.

    python -m benchmarks.divergence MODEL.gguf ... --text FILE --tokens 300

The reference are Octavo's logits with f32 activations and the same weights. Each row gives the Kullback-Leibler
divergence KL(reference || engine) in nats, mean and largest over the tokens, and how often the likeliest token is the
same. llama.cpp runs without and with flash attention; its keys and values are of --kv, and Octavo's as it keeps them.
"""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.compare_llamacpp import DEFAULT_BASELINE
from engine.measure.score import score_tokens
from engine.text.tokenizer import Tokenizer
from engine.weights.files.weights_file import WeightsFile
from engine.weights.open_weights import open_weights

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Row = dict[str, object]


def divergence(reference: Float32, found: Float32) -> Float64:
    """KL(softmax(reference) || softmax(found)) of each row in nats, float64 [tokens]; inputs are logits."""
    exact, other = log_softmax(reference), log_softmax(found)
    result: Float64 = (np.exp(exact) * (exact - other)).sum(axis=1)
    return result


def log_softmax(logits: Float32) -> Float64:
    """The logarithm of each row's softmax, in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    result: Float64 = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def describe(engine: str, model: Path, reference: Float32, found: Float32) -> Row:
    """One line of the result."""
    values = divergence(reference, found)
    same = reference.argmax(axis=1) == found.argmax(axis=1)
    return {
        "model": model.name,
        "engine": engine,
        "tokens": len(values),
        "mean": float(values.mean()),
        "largest": float(values.max()),
        "same_top": float(same.mean()),
    }


def rows_of(model: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    """Compare the engines with the reference on one model, one after the other."""
    with open_weights(model) as file:
        tokens = _tokens(file, arguments)
        reference = score_tokens(file, tokens, threads=arguments.threads, activations="f32")
        ours = score_tokens(file, tokens, threads=arguments.threads)
    yield describe("octavo", model, reference, ours)
    for flash in (0, 1):
        name = "llama.cpp flash" if flash else "llama.cpp"
        yield describe(name, model, reference, _llamacpp_logits(model, tokens, flash, arguments))


def _tokens(file: WeightsFile, arguments: argparse.Namespace) -> list[int]:
    if arguments.ids:
        ids: list[int] = json.loads(arguments.ids.read_text())
    else:
        ids = Tokenizer.from_metadata(file.metadata).encode_prompt(arguments.text.read_text())
    return ids[: arguments.tokens]


def _llamacpp_logits(model: Path, tokens: Sequence[int], flash: int, arguments: argparse.Namespace) -> Float32:
    script = Path(__file__).with_name("llamacpp_baseline.py")
    python = str(arguments.baseline / "bin" / "python")
    with tempfile.TemporaryDirectory() as folder:
        ids, out = Path(folder, "ids.json"), Path(folder, "logits.npy")
        ids.write_text(json.dumps(list(tokens)))
        options = [f"--ids={ids}", f"--out={out}", f"--flash={flash}", f"--kv={arguments.kv}"]
        options.append(f"--threads={arguments.threads}")
        subprocess.run([python, str(script), "logits", str(model), *options], check=True)
        found: Float32 = np.load(out)
    return found


def table_of(rows: Sequence[Row]) -> Table:
    """The rows for people."""
    table = Table("model", "engine", "tokens", "mean KL", "largest KL", "same top")
    for row in rows:
        numbers = (f"{row['mean']:.2e}", f"{row['largest']:.2e}", f"{row['same_top']:.1%}")
        table.add_row(str(row["model"]), str(row["engine"]), str(row["tokens"]), *numbers)
    return table


def main(given: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.divergence",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL.gguf")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", type=Path, help="a text, cut by each model's own tokenizer")
    source.add_argument("--ids", type=Path, help="a JSON list of token ids")
    parser.add_argument("--tokens", type=int, default=300, help="the first so many [%(default)s]")
    parser.add_argument("--kv", choices=("f16", "f32"), default="f16", help="llama.cpp's keys and values [%(default)s]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--baseline", type=Path, default=Path(os.environ.get("OCTAVO_BASELINE", DEFAULT_BASELINE)))
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    arguments = parser.parse_args(given)
    rows = (row for model in arguments.models for row in rows_of(model, arguments))
    if arguments.json:
        for row in rows:
            print(json.dumps(row), flush=True)
    else:
        Console().print(table_of(list(rows)))


if __name__ == "__main__":
    main()
