"""Compiling at start: once for all servers, in processes of their own, and never again."""

import fcntl
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from engine.api.config import EngineConfig
from engine.families.emit.delta import delta_kernels
from engine.families.emit.mixture import mixture_kernels
from engine.loading.compile_kernels import kernel_groups
from engine.loading.load_runner import load_runner
from engine.run.runner_protocol import SequenceRows
from engine.weights.files.gguf import GgufFile
from kernels.build import compile_processes
from kernels.build.code_store import CodeStore
from kernels.build.compile_processes import _queue, _start
from kernels.build.jit import find
from kernels.delta.recurrent import DeltaShape
from kernels.quant.weight_types import WEIGHT_TYPES
from kernels.sampling import logits
from tests.tiny.models import write_tiny_llama

ROOT = Path(__file__).parents[3]
LOAD = """
    import sys
    from engine.loading.load_runner import EngineConfig, load_runner
    from engine.run.runner_protocol import SequenceRows
    from engine.weights.files.gguf import GgufFile
    from kernels.build import compile_processes
    from pathlib import Path

    workers = []
    start = compile_processes._start
    compile_processes._start = lambda *arguments: workers.append(start(*arguments)) or workers[-1]
    compile_processes.usable_cores = lambda: 2
    runner = load_runner(GgufFile.open(Path(sys.argv[1])), EngineConfig(), lambda stage, share: None).runner
    print([worker.returncode for worker in workers])
    print(runner.run([SequenceRows([1, 2, 3], 0, ([0],), True)]).tobytes().hex())
    print(sorted({"numba", "llvmlite"} & sys.modules.keys()))
    runner.close()
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model") / "tiny.gguf", seed=3, types="F32")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder that the tests fill one after the other."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def bits(model: Path) -> str:
    """The logits where kernels are compiled in the process that runs them."""
    runner = load_runner(GgufFile.open(model), EngineConfig(), lambda stage, share: None).runner
    try:
        return runner.run([SequenceRows([1, 2, 3], 0, ([0],), 1)]).tobytes().hex()
    finally:
        runner.close()


def start(program: str, cache: Path, *arguments: str) -> "subprocess.Popen[str]":
    environment = {"OCTAVO_CACHE": str(cache), "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: "subprocess.Popen[str]") -> list[str]:
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return said.splitlines()


def test_servers_that_start_at_once_compile_once_in_two_processes(model: Path, cache: Path, bits: str) -> None:
    starts = [start(LOAD, cache, str(model)) for _ in range(2)]
    said = [ended(process) for process in starts]
    assert sorted(workers for workers, *_ in said) == ["[0, 0]", "[]"]
    assert [rest for _, *rest in said] == [[bits, "[]"]] * 2, "no server has a compiler in it"


def test_a_second_start_compiles_nothing_and_gives_the_same_bits(model: Path, cache: Path, bits: str) -> None:
    assert ended(start(LOAD, cache, str(model))) == ["[]", bits, "[]"]


def test_code_that_is_damaged_or_gone_is_compiled_again(model: Path, cache: Path, bits: str) -> None:
    (damaged,) = cache.rglob("kernels.matmul.row_ops.pack_kernel.code")
    (gone,) = cache.rglob("kernels.sampling.logits._ban_unset.code")
    before = damaged.read_bytes()
    damaged.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    gone.unlink()
    workers, *rest = ended(start(LOAD, cache, str(model)))
    assert workers == "[0, 0]" and rest == [bits, "[]"]
    assert gone.exists() and len(damaged.read_bytes()) == len(before)
    assert ended(start(LOAD, cache, str(model))) == ["[]", bits, "[]"]


def test_a_kernel_that_cannot_be_compiled_says_why(cache: Path) -> None:
    program = """
        from kernels.build.compile_processes import CompileError
        from kernels.build.jit import Kernel
        try:
            Kernel("kernels.matmul.row_ops", "no_such", None, lambda: None, "void()").address
        except CompileError as error:
            print(error)
    """
    (told,) = ended(start(program, cache))
    assert told.startswith("The kernel kernels.matmul.row_ops.no_such could not be compiled (AttributeError:")


def test_a_process_that_compiles_holds_the_lock_until_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server may have been killed meanwhile, and the next one must not compile beside it."""
    tmp_path.chmod(0o700)
    store = CodeStore(tmp_path)
    monkeypatch.setattr(compile_processes, "code_store", lambda: store)
    queue = _queue(1)
    with (tmp_path / "lock").open("w") as lock, (tmp_path / "lock").open("w") as other:
        fcntl.flock(lock, fcntl.LOCK_EX)
        worker = _start([[kernel.origin for kernel in logits.MASK_KERNELS]], queue, [lock.fileno()], subprocess.DEVNULL)
        os.close(queue)
        lock.close()
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert worker.wait(60) == 0
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert all(store.read(kernel.name) for kernel in logits.MASK_KERNELS)


def test_other_processes_find_every_familys_kernels() -> None:
    shape = DeltaShape(key_heads=2, value_heads=4, key_dim=32, value_dim=32)
    own = [*delta_kernels(shape, 0), *mixture_kernels()]
    kernels = [kernel for group in kernel_groups(sorted(WEIGHT_TYPES), own, "int8", 1, 0) for kernel in group]
    assert all(find(*json.loads(json.dumps(kernel.origin))) is kernel for kernel in kernels)
    assert len({kernel.name for kernel in kernels}) == len(set(kernels))
