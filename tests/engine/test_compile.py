"""Compiling at start: once for all processes, and in two of them where nothing is compiled yet."""

import fcntl
import functools
import os
import pickle
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from engine.families.compile import _groups, _start_helper
from engine.families.delta_layer import delta_kernels
from engine.families.mixture_emitter import mixture_kernels
from kernels.quant.weight_types import WEIGHT_TYPES
from kernels.recurrent import DeltaShape
from tests.tiny_models import write_tiny_llama

ROOT = Path(__file__).parents[2]
LOAD = """
    import sys
    from engine.families import compile
    from engine.families.loaded import RunnerOptions, load_runner
    from engine.runner_protocol import SequenceRows
    from engine.weights.gguf import GgufFile
    from kernels.jit import nothing_is_compiled
    from pathlib import Path

    children = []
    start = compile._start_helper
    compile._start_helper = lambda *arguments: children.append(start(*arguments)) or children[-1]
    compile.usable_cores = lambda: 2
    print("cold" if nothing_is_compiled() else "warm")
    runner = load_runner(GgufFile.open(Path(sys.argv[1])), RunnerOptions(), lambda stage, share: None).runner
    print([child.returncode for child in children])
    print(runner.run([SequenceRows([1, 2, 3], 0, ([0],), True)]).tobytes().hex())
    runner.close()
"""


def load(model: Path, cache: Path) -> "subprocess.Popen[str]":
    environment = {"OCTAVO_CACHE": str(cache), "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    arguments = [sys.executable, "-c", textwrap.dedent(LOAD), str(model)]
    return subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True)


def test_a_cold_start_compiles_in_two_processes_and_servers_that_start_at_once_take_turns(tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path / "tiny.gguf", seed=3, types="F32")
    starts = [load(model, tmp_path / "cache") for _ in range(2)]
    said = [start.communicate(timeout=300)[0].splitlines() for start in starts]
    assert [start.returncode for start in starts] == [0, 0]
    assert sorted(children for _, children, _ in said) == ["[0]", "[]"], "one of them compiles, with a child"
    third = load(model, tmp_path / "cache").communicate(timeout=300)[0].splitlines()
    assert third[:2] == ["warm", "[]"]
    assert len({logits for *_, logits in [*said, third]}) == 1


def test_a_process_that_helps_holds_the_lock_until_it_ends(tmp_path: Path) -> None:
    """Its server may have been killed meanwhile, and the next one must not compile beside it."""
    queue, numbers = os.pipe()
    os.write(numbers, bytes([0]))
    os.close(numbers)
    with (tmp_path / "lock").open("w") as lock, (tmp_path / "lock").open("w") as other:
        fcntl.flock(lock, fcntl.LOCK_EX)
        helper = _start_helper(queue, lock.fileno(), [[functools.partial(time.sleep, 1)]])
        os.close(queue)
        lock.close()
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert helper.wait(60) == 0
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_every_familys_tasks_reach_the_processes_that_help() -> None:
    shape = DeltaShape(key_heads=2, value_heads=4, key_dim=32, value_dim=32)
    own = [*delta_kernels(shape, 0), *mixture_kernels(None, "int8", 0)]
    groups = _groups(sorted(WEIGHT_TYPES), own, "int8", 1, 0, 1000)
    sent = pickle.loads(pickle.dumps(groups))
    assert [len(group) for group in sent] == [len(group) for group in groups]
