"""The front door: what it leaves behind for the command that it runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.machine.cpu import usable_cores

ROOT = Path(__file__).parents[1]


def test_the_collector_is_off_while_importing_and_on_for_every_command() -> None:
    program = """
import builtins, gc, sys
import octavo

seen = {}
plain_import = builtins.__import__

def noted(name, *rest):
    if name == "server.cli.main":
        seen["importing"] = gc.isenabled()
    module = plain_import(name, *rest)
    if name == "server.cli.main":
        module.main = lambda: seen.update(running=gc.isenabled()) or 0
    return module

builtins.__import__ = noted
try:
    octavo.main()
except SystemExit as end:
    assert end.code == 0
assert seen == {"importing": False, "running": True}, seen
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=60)


@pytest.mark.skipif(usable_cores() < 2, reason="one core has one thread in any case")
@pytest.mark.parametrize(("said", "threads"), [(None, 1), ("2", 2)])
def test_a_command_starts_no_threads_that_nobody_asked_for(said: str | None, threads: int) -> None:
    """NB-33: a library's thread for each core of the host, in a container that may use one of them."""
    program = """
import os, sys
import octavo

sys.argv = ["octavo", "doctor", "--megabytes", "16"]
try:
    octavo.main()
except SystemExit:
    pass
assert "numpy" in sys.modules
print(len(os.listdir("/proc/self/task")))
"""
    environment = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    environment |= {} if said is None else {"OPENBLAS_NUM_THREADS": said}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, check=True, timeout=60, capture_output=True, text=True, env=environment)
    assert int(done.stdout.splitlines()[-1]) == threads
