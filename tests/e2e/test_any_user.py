"""Octavo run as a user that the system has no entry of, in group 0, without a home folder: as OpenShift runs it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kernels.build.code_store import code_store
from tests.e2e.processes import ROOT, octavo, wait_until_ready
from tests.server.cli.test_serve import free_port
from tests.tiny.models import write_tiny_llama

USER = 1000680000
# The right to read what is root's is left to it, since Python itself may lie in root's home folder.
READS = "-all,+dac_read_search"
AS_USER = ["setpriv", f"--reuid={USER}", "--regid=0", "--clear-groups"]
AS_USER += [f"--inh-caps={READS}", f"--ambient-caps={READS}"]
READ_ONLY = ["unshare", "--mount", "sh", "-c", 'mount --rbind / / && mount -o remount,ro,bind / && exec "$@"', "sh"]
# The same, but for the folder of temporary files, in which the volumes of these tests lie.
BUT_VOLUMES = [*READ_ONLY[:4], READ_ONLY[4].replace(" && mount -o", ' && mount --bind "$0" "$0" && mount -o')]
BUT_VOLUMES += [tempfile.gettempdir()]

(IMAGE_MODE,) = re.findall(r"--owner root --group root --mode (\d+) /data$", (ROOT / "Dockerfile").read_text(), re.M)


def runs(*command: str) -> bool:
    try:
        return subprocess.run([*command, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not runs(*AS_USER), reason="only root can run a program as another user, by setpriv")


@pytest.fixture
def volume() -> Iterator[Path]:
    """A folder that others can reach."""
    with tempfile.TemporaryDirectory(prefix="octavo-test-") as name:
        Path(name).chmod(0o755)
        folder = Path(name) / "data"
        folder.mkdir()
        yield folder


def environment(cache: Path | None) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key in {"PATH", "LANG"}}
    return kept if cache is None else kept | {"OCTAVO_CACHE": str(cache)}


def as_user(*arguments: str, cache: Path | None, read_only: bool = False) -> subprocess.CompletedProcess[str]:
    command = [*(READ_ONLY if read_only else []), *AS_USER, *octavo(*arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment(cache), cwd="/")
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize(("mode", "is_kept"), [(0o2775, False), (0o1777, True), (0o1770, True), (0o770, False)])
def test_doctor_finds_nothing_wrong_with_a_volume_that_the_group_can_write_to(
    volume: Path, mode: int, is_kept: bool
) -> None:
    volume.chmod(mode)
    done = as_user("doctor", "--megabytes", "16", cache=volume)
    assert f"cache        {volume}" in done.stdout and "set OCTAVO_CACHE" not in done.stderr
    assert ("compiled again at each start" in done.stdout) != is_kept
    assert (volume / "kernels").exists() == is_kept
    assert not list(Path(tempfile.gettempdir()).glob("octavo-kernels-*"))


@pytest.mark.skipif(not runs(*READ_ONLY), reason="no read-only file system can be made here")
@pytest.mark.parametrize(
    ("mode", "is_kept"),
    [(int(IMAGE_MODE, 8), True), (0o1777, True), (0o2775, False)],
    ids=["image", "tmpfs", "fsGroup"],
)
def test_a_model_in_a_volume_is_served_by_its_name_on_a_read_only_system(
    volume: Path, mode: int, is_kept: bool
) -> None:
    """NB-34: containers run as any number of group 0, and only their volumes can be written to."""
    volume.chmod(mode)
    models, kernels = volume / "models", volume / "kernels"
    models.mkdir(mode=0o755)
    write_tiny_llama(models / "tiny.gguf")
    if is_kept:
        shutil.copytree(code_store().folder, kernels / code_store().folder.name)  # or the start would take longer
        for path in (kernels, *kernels.rglob("*")):
            os.chown(path, USER, 0)
        kernels.chmod(0o700)
    port = free_port()
    command = [*BUT_VOLUMES, *AS_USER, *octavo("serve", "tiny", "--port", str(port))]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment(volume), cwd="/")
    try:
        wait_until_ready(f"http://127.0.0.1:{port}", process)
        body = {"model": "tiny", "prompt": "a", "max_tokens": 3}
        assert httpx.post(f"http://127.0.0.1:{port}/v1/completions", json=body).status_code == 200
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert ("compiled again" in errors) != is_kept and "Traceback" not in errors


def test_without_any_folder_one_sentence_says_which_to_give() -> None:
    """NB-34: no home folder, no cache folder."""
    done = as_user("doctor", "--megabytes", "16", cache=None)
    assert done.returncode == 1
    assert done.stderr == "octavo: This user has no home folder; set OCTAVO_CACHE to a folder that you can write to.\n"


@pytest.mark.skipif(not runs(*READ_ONLY), reason="no read-only file system can be made here")
def test_on_a_read_only_system_doctor_and_pull_say_which_folder_to_give(volume: Path) -> None:
    done = as_user("doctor", "--megabytes", "16", cache=volume, read_only=True)
    assert "compiled again at each start" in done.stdout + done.stderr or "for compiled kernels" in done.stderr
    assert "set OCTAVO_CACHE" in done.stdout + done.stderr
    done = as_user("pull", cache=volume, read_only=True)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert "Read-only file system; set OCTAVO_CACHE" in done.stderr


CLOSED = """
import os, sys
from engine.errors import OctavoError
from engine.weights.catalogue import cached_models, resolve_model
os.setgid(65534), os.setgroups([]), os.setuid(1000680000)
for act in (cached_models, lambda: resolve_model("mine"), lambda: resolve_model("smollm2-135m")):
    try:
        act()
    except OctavoError as error:
        print(error)
"""


@pytest.mark.parametrize("closed", ["data", "data/models"])
def test_a_closed_models_folder_is_told_and_not_taken_for_an_empty_one(volume: Path, closed: str) -> None:
    (volume / "models").mkdir()
    (volume.parent / closed).chmod(0)
    done = subprocess.run(
        [sys.executable, "-c", CLOSED], capture_output=True, text=True, env=environment(volume), cwd=ROOT, timeout=300
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and all("Permission denied" in line and "set OCTAVO_CACHE" in line for line in lines)
