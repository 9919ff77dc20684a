"""Arrows run one way: no circle between two files, and none between two folders of one part of the tree."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("server", "engine", "kernels", "clients")


def test_no_circle_between_files() -> None:
    assert circle(file_uses()) is None


@pytest.mark.parametrize("part", PARTS)
def test_no_circle_between_the_folders_of_a_part(part: str) -> None:
    """A file that lies beside the folders counts as a folder of its own."""
    uses: dict[str, set[str]] = {}
    for name, used in file_uses().items():
        if name.startswith(f"{part}."):
            inside = {folder_of(other) for other in used if other.startswith(f"{part}.")}
            uses.setdefault(folder_of(name), set()).update(inside - {folder_of(name)})
    assert circle(uses) is None


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) in (["b", "c", "b"], ["c", "b", "c"])
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None


def circle(uses: dict[str, set[str]]) -> list[str] | None:
    """The names along one circle; None where there is none."""
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return None


def file_uses() -> dict[str, set[str]]:
    """From each module to the modules of ours that it imports, wherever in the file, and for its types alone too."""
    paths = {path: module_name(path) for part in PARTS for path in sorted((ROOT / part).rglob("*.py"))}
    known = set(paths.values())
    return {name: imports_of(path, known) - {name} for path, name in paths.items()}


def imports_of(path: Path, known: set[str]) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & known


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def folder_of(module: str) -> str:
    """engine.text.bpe -> engine.text, and engine.loop -> engine.loop, which lies beside the folders."""
    names = module.split(".")
    return module if len(names) <= 2 else ".".join(names[:-1])
