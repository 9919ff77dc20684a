"""Measures Octavo and llama.cpp in turn on the same files: prefill and decode, medians over rounds, and their ratios.

    python -m benchmarks.compare_llamacpp MODEL.gguf ... --rounds 3 --batch 1,8

Each measurement is a process of its own and never two run at once. llama.cpp runs without and with flash attention and
its better median counts; each round turns the order around (ABBA). benchmarks/build_llamacpp.sh makes its environment.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from benchmarks.comparison import Line, compare, comparison_table

ROOT = Path(__file__).resolve().parents[1]
DEFAULT_BASELINE = Path.home() / ".cache" / "octavo-baseline"
_QUIET_LOAD = 0.5
_ENGINES = ("octavo", "llama.cpp", "llama.cpp flash")


def order(round_number: int) -> tuple[str, ...]:
    """The engines in the order of a round; every second round runs backwards."""
    return _ENGINES if round_number % 2 == 0 else _ENGINES[::-1]


def command(engine: str, model: Path, arguments: argparse.Namespace) -> list[str]:
    """The command line that measures one engine once."""
    sizes = [f"--{name}={getattr(arguments, name)}" for name in ("threads", "batch", "prompt", "gen", "ctx0", "reps")]
    if engine == "octavo":
        isa = [f"--isa={arguments.isa}"] if arguments.isa else []
        return [sys.executable, str(ROOT / "octavo.py"), "bench", "engine", str(model), "--json", *sizes, *isa]
    script = Path(__file__).with_name("llamacpp_baseline.py")
    flash = int(engine.endswith("flash"))
    return [str(arguments.baseline / "bin" / "python"), str(script), "bench", str(model), f"--flash={flash}", *sizes]


def measure(engine: str, model: Path, arguments: argparse.Namespace) -> list[Line]:
    """Run one engine once; SystemExit with its last words where it fails."""
    done = subprocess.run(command(engine, model, arguments), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{engine} failed on {model}: {(done.stderr or done.stdout).strip()[-2000:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [{**line, "model": model.name} for line in lines]


def all_lines(arguments: argparse.Namespace, console: Console) -> Iterator[Line]:
    """Every measured line of every round."""
    runs = [
        (round_number, engine, model)
        for model in arguments.models
        for round_number in range(arguments.rounds)
        for engine in order(round_number)
    ]
    for round_number, engine, model in track(runs, description="Measuring", console=console, transient=True):
        for line in measure(engine, model, arguments):
            yield {**line, "round": round_number}


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare_llamacpp",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL.gguf")
    baseline = Path(os.environ.get("OCTAVO_BASELINE", DEFAULT_BASELINE))
    parser.add_argument(
        "--baseline", type=Path, default=baseline, help="llama.cpp's environment [$OCTAVO_BASELINE or %(default)s]"
    )
    parser.add_argument("--batch", default="1,8", help="numbers of sequences that decode at once [%(default)s]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--isa", help="Octavo's instruction tier [its best]")
    numbers = {"rounds": 3, "prompt": 512, "gen": 48, "ctx0": 64, "reps": 2}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default, help="[%(default)s]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every line, and the comparison, there")
    arguments = parser.parse_args(given)
    if not (arguments.baseline / "bin" / "python").exists():
        parser.error(f"there is no llama.cpp in {arguments.baseline}; run benchmarks/build_llamacpp.sh")
    for model in arguments.models:
        if not model.is_file():
            parser.error(f"there is no file {model}")
    return arguments


def main(given: Sequence[str] | None = None) -> None:
    """Run the command line."""
    arguments, console, progress = _arguments(given), Console(), Console(stderr=True)
    if os.getloadavg()[0] > _QUIET_LOAD:
        progress.print(f"The machine is busy (load {os.getloadavg()[0]:.1f}); the figures will be those of a busy one.")
    lines = list(all_lines(arguments, progress))
    rows = compare(lines)
    if arguments.json:
        arguments.json.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *rows]))
    console.print(comparison_table(lines, rows))


if __name__ == "__main__":
    main()
