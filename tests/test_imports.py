"""The shape of the tree: data flows one way, files stay short, and each says in one sentence what it is for."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("server", "engine", "kernels", "clients")
MAX_LINES = 400

# engine/ speaks to kernels/ through these doors only; a trailing slash names a folder.
ENGINE_DOORS = (
    "engine/families/",
    "engine/loading/",
    "engine/machine.py",
    "engine/measure/",
    "engine/sampling/sampler.py",
    "engine/weights/files/gguf_tensors.py",
    "engine/weights/load.py",
    "engine/weights/mapping/config.py",  # the frequencies of rotary positions
    "engine/weights/quantize.py",
)

# Folders of kernels/, each of which may import those before it.
KERNEL_LAYERS = ("machine", "build", "simd", "run", "sampling", "quant", "matmul", "attention", "delta")

# A server that compiles nothing must not have them in memory.
COMPILER_FILES = ("kernels/build/toolchain.py", "kernels/build/compiler.py")

# Templates are programs of strangers: nothing else may compile them.
TEMPLATE_FILES = ("engine/text/chat_template.py", "engine/text/sandbox/template_")


def test_the_server_never_imports_kernels() -> None:
    assert imports_of("server", {"kernels"}) == []


def test_the_engine_knows_neither_the_server_nor_the_clients() -> None:
    assert imports_of("engine", {"server", "clients"}) == []


def test_the_engine_reaches_kernels_through_its_doors_only() -> None:
    found = imports_of("engine", {"kernels"})
    assert [line for line in found if not line.startswith(ENGINE_DOORS)] == []


def test_kernels_import_only_numpy_numba_llvmlite_and_the_standard_library() -> None:
    allowed = {"kernels", "numpy", "numba", "llvmlite"} | sys.stdlib_module_names
    found = [f"{where}: {name}" for where, name in all_imports("kernels") if name.partition(".")[0] not in allowed]
    assert found == []


def test_the_folders_of_kernels_import_one_way() -> None:
    layer = {name: index for index, name in enumerate(KERNEL_LAYERS)}
    found = []
    for where, name in all_imports("kernels"):
        if name.startswith("kernels.") and layer[name.split(".")[1]] > layer[where.split("/")[1]]:
            found.append(f"{where}: {name}")
    assert found == []


def test_numba_and_llvmlite_stay_behind_the_toolchain() -> None:
    found = [line for part in PARTS for line in imports_of(part, {"numba", "llvmlite"})]
    assert [line for line in found if not line.startswith(COMPILER_FILES)] == []


def test_clients_are_tied_to_the_server_by_http_alone() -> None:
    assert imports_of("clients", {"server", "engine", "kernels"}) == []


def test_jinja2_stays_behind_the_sandbox_of_chat_templates() -> None:
    found = [line for part in PARTS for line in imports_of(part, {"jinja2"})]
    assert [line for line in found if not line.startswith(TEMPLATE_FILES)] == []


def test_llguidance_stays_behind_the_process_that_tries_grammars_out() -> None:
    found = [line for part in PARTS for line in imports_of(part, {"llguidance"})]
    assert [line for line in found if not line.startswith(("engine/text/constraints/", "engine/text/sandbox/"))] == []


def test_transformers_never_enters_our_process() -> None:
    # With Hugging Face's `kernels` installed, transformers would pick up our folder of that name.
    assert [line for part in PARTS for line in imports_of(part, {"transformers"})] == []


def test_the_front_door_loads_nothing_before_the_path_is_set() -> None:
    tree = ast.parse((ROOT / "octavo.py").read_text())
    imported = {name.partition(".")[0] for node in tree.body for name in names_imported_by(node)}
    assert imported <= sys.stdlib_module_names


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {relative(path): len(path.read_text().splitlines()) for path in modules(*PARTS)}
    assert {path: lines for path, lines in lengths.items() if lines > MAX_LINES} == {}


def test_every_module_says_what_it_is_for() -> None:
    paths = [ROOT / "octavo.py", *modules(*PARTS, "tests", "benchmarks")]
    assert [relative(path) for path in paths if not ast.get_docstring(ast.parse(path.read_text()))] == []


def imports_of(part: str, targets: set[str]) -> list[str]:
    """Every "file:line: module" in a part of the tree that imports one of the top-level names in `targets`."""
    return [f"{where}: {name}" for where, name in all_imports(part) if name.partition(".")[0] in targets]


def all_imports(part: str) -> Iterator[tuple[str, str]]:
    """(file:line, absolute module name) of every import in a part, wherever in the file it stands."""
    paths = modules(part)
    assert paths, f"{part}/ holds no module"
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            for name in names_imported_by(node):
                yield f"{relative(path)}:{getattr(node, 'lineno', 0)}", name


def names_imported_by(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module]
    return []


def modules(*parts: str) -> list[Path]:
    return sorted(path for part in parts for path in (ROOT / part).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
