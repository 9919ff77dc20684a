"""What loading takes beside the weights: a few pieces of a tensor and of its file, however large that is."""

import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.weights import load
from engine.weights.load import WeightLoader, loading_kernels
from engine.weights.open_weights import open_weights
from engine.weights.quantized_file import quantized
from kernels.quant.weight_types import WEIGHT_TYPES
from tests.tiny.models import write_out

ROWS, COLUMNS = 16384, 1024  # 32 MiB of F16
THREADS, PIECE = 2, 2 << 20
# Bytes beside the weights: of a type that is packed as it is, widened to float32 first, or quantized, which works on
# float32 with some copies.
LIMITS = {
    ("int8", None): (THREADS + 1) * PIECE,
    ("f32", None): THREADS * 3 * PIECE,
    ("int8", "q8_0"): THREADS * 24 * PIECE,
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "large.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("matrix", np.ones((ROWS, COLUMNS), np.float16))
    write_out(writer)
    return path


def resident_pages(path: Path) -> int:
    """Bytes of a file's pages that this process holds."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split(maxsplit=1)[0]
        if not first.endswith(":"):
            inside = line.endswith(str(path))
        elif inside and first == "Rss:":
            total += int(line.split()[1]) * 1024
    return total


def test_pages_that_are_read_are_counted(path: Path) -> None:
    with open_weights(path) as file:
        before = resident_pages(path)
        assert file.raw("matrix").max() > 0
        assert resident_pages(path) - before > ROWS * COLUMNS


@pytest.mark.parametrize(("activations", "type_name"), LIMITS)
def test_a_matrix_passes_through_memory_in_pieces(
    path: Path, monkeypatch: pytest.MonkeyPatch, activations: str, type_name: str | None
) -> None:
    monkeypatch.setattr(load, "usable_cores", lambda: THREADS)
    for kernel in loading_kernels(WEIGHT_TYPES[type_name.upper() if type_name else "F16"], activations):
        assert kernel.address
    taken: list[int] = []
    pages: list[int] = []
    for _ in range(3):  # threads of earlier tests may still end meanwhile, and what they take counts too
        with quantized(open_weights(path), type_name) as file:
            weights = WeightLoader(file, activations=activations, progress=lambda _: pages.append(resident_pages(path)))
            tracemalloc.start()
            try:
                with weights:
                    matrix = weights.matrix("matrix", ROWS, COLUMNS)
                    weights.finish()
                taken.append(tracemalloc.get_traced_memory()[1])
            finally:
                tracemalloc.stop()
        assert matrix.packed.any()
    assert min(taken) < LIMITS[activations, type_name]
    assert len(pages) > 8
    assert max(pages) < PIECE  # what is read is no page of a mapping
