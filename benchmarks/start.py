"""Seconds from a server's start until it is alive (GET /health) and until its model answers (GET /ready).

    python -m benchmarks.start smollm2-135m --repeats 7 --cold

A first start, with --cold, has an empty cache of compiled kernels; the others find what is there. A table goes to
stderr, one JSON line with every start and the medians to stdout. `processor` is the time that the server's own process
had used when it was ready: on two idle cores a start takes hardly longer than that.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
from rich.table import Table

from benchmarks.serving.program import tell, warn_if_busy
from benchmarks.serving.server_process import ROOT, free_port
from engine.machine import cache_folder

_PAUSE_SECONDS = 0.03  # between questions: each takes a millisecond of what is being measured
_STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds of one start."""

    alive: float
    ready: float
    processor: float


def measure_start(model: str, environment: Mapping[str, str]) -> Start:
    """Start a server, wait until it is ready, and stop it; SystemExit where it does not get ready."""
    port = free_port()
    command = [sys.executable, str(ROOT / "octavo.py"), "serve", model, "--port", str(port)]
    with tempfile.TemporaryFile() as log:
        begin = time.perf_counter()
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            alive = _until_success(server, f"http://127.0.0.1:{port}/health") - begin
            ready = _until_success(server, f"http://127.0.0.1:{port}/ready") - begin
            return Start(alive, ready, _processor_seconds(server.pid))
        except ChildProcessError:
            log.seek(0)
            raise SystemExit(f"The server did not get ready: {log.read().decode(errors='replace').strip()}") from None
        finally:
            server.terminate()
            server.wait(timeout=_STOP_SECONDS)


def _until_success(server: "subprocess.Popen[bytes]", url: str) -> float:
    """The moment of the first answer 200; raises ChildProcessError if the server has ended."""
    with httpx.Client() as client:
        while server.poll() is None:
            try:
                if client.get(url).is_success:
                    return time.perf_counter()
            except httpx.TransportError:
                pass
            time.sleep(_PAUSE_SECONDS)
    raise ChildProcessError


def _processor_seconds(pid: int) -> float:
    """User and system time of a process, its children's left out (proc_pid_stat(5): fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def empty_cache() -> Iterator[dict[str, str]]:
    """An environment whose cache has the models of ours, and no compiled kernels."""
    with tempfile.TemporaryDirectory(prefix="octavo-start-") as folder:
        models = cache_folder() / "models"
        if models.is_dir():
            (Path(folder) / "models").mkdir(mode=0o700)
            for file in models.iterdir():
                _link(file, Path(folder) / "models" / file.name)
        yield {**os.environ, "OCTAVO_CACHE": folder}


def _link(file: Path, place: Path) -> None:
    try:
        place.hardlink_to(file.resolve())
    except OSError:  # on another file system
        shutil.copy(file, place)


def medians(starts: Sequence[Start]) -> Start:
    columns = zip(*(asdict(start).values() for start in starts), strict=True)
    return Start(*(round(statistics.median(column), 3) for column in columns))


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.start", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default="smollm2-135m", help="as `octavo serve` takes it [%(default)s]")
    parser.add_argument("--repeats", type=int, default=7, help="starts with kernels compiled [%(default)s]")
    parser.add_argument("--cold", action="store_true", help="measure a first start too")
    arguments = parser.parse_args(given)
    warn_if_busy()
    found: dict[str, list[Start]] = {}
    if arguments.cold:
        with empty_cache() as environment:
            found["first"] = [measure_start(arguments.model, environment)]
    measure_start(arguments.model, os.environ)  # fills the cache, and the system's of files
    found["later"] = [measure_start(arguments.model, os.environ) for _ in range(arguments.repeats)]
    table = Table("start", "alive, s", "ready, s", "processor, s", title=f"{arguments.model}: medians")
    for name, starts in found.items():
        table.add_row(name, *(f"{seconds:.2f}" for seconds in asdict(medians(starts)).values()))
    figures = {
        name: {"median": asdict(medians(starts)), "starts": [asdict(start) for start in starts]}
        for name, starts in found.items()
    }
    tell(arguments, figures, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
