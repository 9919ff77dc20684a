"""The front door: what it leaves behind for the command that it runs."""

import subprocess
import sys
from pathlib import Path

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
