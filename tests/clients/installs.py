"""Client libraries that are no part of the test environment: installed when first needed, kept in pytest's cache."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "clients" / "examples"
INSTALL_SECONDS = 300
RUN_SECONDS = 120
OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # else it asks for a newer list of prices at its start


def python_with(requirement: str, cache: pytest.Cache) -> Path:
    """A Python that has this package over those of the test environment, which stay as they are."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"

    def build(folder: Path) -> None:
        _install([sys.executable, "-m", "venv", "--without-pip", str(folder)])
        site_packages = folder / "lib" / f"python{version}" / "site-packages"
        (site_packages / "test_environment.pth").write_text(sysconfig.get_path("purelib"))
        into = ["--python", str(folder / "bin" / "python")]
        quietly = ["--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1"]
        _install([sys.executable, "-m", "pip", *into, "install", *quietly, requirement])

    return _kept(cache, f"{requirement}-python{version}", build) / "bin" / "python"


def node_with(package: str, cache: pytest.Cache) -> Path:
    """A folder from which Node scripts can import this package."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("There is no Node here.")

    def build(folder: Path) -> None:
        quietly = ["--silent", "--no-audit", "--no-fund", "--fetch-retries=1"]
        _install(["npm", "install", *quietly, "--prefix", str(folder), package])

    return _kept(cache, f"{package}-node", build)


def run_example(command: Sequence[str | Path], url: str, model: str, home: Path) -> subprocess.CompletedProcess[str]:
    """What an example prints, and how it ends, with nothing of the developer's own settings."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **OFFLINE}
    return subprocess.run(
        [*map(str, command), url, model],
        capture_output=True,
        text=True,
        env=environment,
        cwd=home,
        timeout=RUN_SECONDS,
    )


def _kept(cache: pytest.Cache, name: str, build: Callable[[Path], None]) -> Path:
    """The folder of this name, built where it is not there yet; half of one is never left, nor two made into one."""
    root = cache.mkdir("clients")
    kept = root / "".join(character if character.isalnum() else "-" for character in name)
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=root, ignore_cleanup_errors=True) as scratch:
            folder = Path(scratch) / "built"
            folder.mkdir()
            build(folder)
            if not kept.exists():
                folder.rename(kept)
    return kept


def _install(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"It takes too long to install: {command[-1]}.")
    if done.returncode != 0:
        reason = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
        pytest.skip(f"Cannot be installed here: {command[-1]} ({reason}).")
