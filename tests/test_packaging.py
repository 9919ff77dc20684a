"""What is installed: one launcher and one folder, every package in it, from locked and complete dependencies."""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("server", "engine", "kernels", "clients")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = (ROOT / "requirements.lock", ROOT / "tests" / "requirements.lock")

# llvmlite comes with numba, anyio with starlette, pydantic-core with pydantic, each at the version its owner needs.
BROUGHT_BY_ANOTHER = {"llvmlite", "anyio", "pydantic-core"}
# Read and copied, not imported; they may use what we do not depend on.
NOT_INSTALLED = ROOT / "clients" / "examples"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a fresh environment that holds our wheel, and sees the dependencies of this one."""
    folder = tmp_path_factory.mktemp("installed")
    environment = folder / "venv"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    pip("--python", str(python), "install", "--no-index", "--no-deps", str(build_wheel(folder)))
    (site_packages(environment) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment


def build_wheel(folder: Path) -> Path:
    """Build from a copy, so that no build/ folder of an earlier day slips old files into the wheel."""
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "octavo.py"):
        shutil.copy(ROOT / name, source)
    for part in PARTS:
        shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
    pip("wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    (wheel,) = folder.glob("octavo-*.whl")
    return wheel


def test_nothing_but_the_launcher_and_one_folder_is_installed(installed: Path) -> None:
    names = {path.name for path in site_packages(installed).iterdir() if path.suffix not in {".dist-info", ".pth"}}
    assert names - {"__pycache__"} == {"octavo.py", "octavo_app"}


def test_the_plain_names_are_not_importable_without_the_launcher(installed: Path, tmp_path: Path) -> None:
    program = "import sys\nfrom importlib.util import find_spec\nfor name in sys.argv[1:]: print(find_spec(name))"
    result = run([installed / "bin" / "python", "-c", program, *PARTS], cwd=tmp_path)
    # Another project's package of such a name may stand among the dependencies; it must not be ours.
    assert len(result.stdout.splitlines()) == len(PARTS)
    assert str(installed) not in result.stdout


def test_every_module_is_installed_and_nothing_else(installed: Path) -> None:
    app = site_packages(installed) / "octavo_app"
    assert files_below(app) == {path.relative_to(ROOT).as_posix() for path in modules()}


def test_the_list_of_packages_names_every_folder() -> None:
    folders = {path.parent for path in modules()}
    expected = {"octavo_app." + ".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == expected


def test_the_command_runs_from_another_folder(installed: Path, tmp_path: Path) -> None:
    result = run([installed / "bin" / "octavo", "--help"], cwd=tmp_path)
    assert "serve" in result.stdout


def test_the_checkout_runs_from_another_folder(tmp_path: Path) -> None:
    result = run([sys.executable, ROOT / "octavo.py", "--help"], cwd=tmp_path)
    assert "serve" in result.stdout


def test_doctor_runs_from_another_folder(installed: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    result = run([installed / "bin" / "octavo", "doctor"], cwd=tmp_path, env={"OCTAVO_CACHE": str(cache)})
    assert str(cache) in result.stdout


def test_without_a_writable_folder_doctor_says_what_to_do(installed: Path, tmp_path: Path) -> None:
    nowhere = no_writable_folder(tmp_path)
    result = run([installed / "bin" / "octavo", "doctor"], cwd=tmp_path, env=nowhere, check=False)
    assert result.returncode == 1
    assert "set OCTAVO_CACHE" in result.stdout
    assert result.stderr == ""


def test_without_a_writable_folder_no_model_is_fetched_and_one_line_says_why(installed: Path, tmp_path: Path) -> None:
    nowhere = no_writable_folder(tmp_path)
    result = run([installed / "bin" / "octavo", "pull"], cwd=tmp_path, env=nowhere, check=False)
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1 and "set OCTAVO_CACHE" in result.stderr


def test_the_declared_dependencies_are_those_that_the_code_imports() -> None:
    declared = {canonicalize_name(Requirement(line).name) for line in PROJECT["project"]["dependencies"]}
    ours = {*PARTS, "octavo"}
    imported = {name for name in imported_names() if name not in sys.stdlib_module_names and name not in ours}
    assert {canonicalize_name(name) for name in imported} - BROUGHT_BY_ANOTHER == declared


def test_every_dependency_has_a_lowest_and_a_highest_version() -> None:
    lines = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["test"]]
    bounds = {line: {one.operator for one in Requirement(line).specifier} for line in lines}
    assert {line: found for line, found in bounds.items() if not {">=", "<"} <= found} == {}


def test_the_tests_that_are_run_with_the_lowest_versions_are_there() -> None:
    paths = re.findall(r"\btests/\S+", (ROOT / ".ci" / "lowest").read_text())
    assert paths and [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.parent.name)
def test_every_line_of_a_lock_is_an_exact_version_with_hashes(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    entries = re.split(r"\n(?=\S)", text.strip())
    assert [entry.splitlines()[0] for entry in entries if not re.match(r"[a-z0-9-]+==\S+", entry)] == []
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_the_locks_satisfy_what_pyproject_asks_for() -> None:
    runtime, everything = (pins(lock) for lock in LOCKS)
    assert runtime.items() <= everything.items()
    test_extra = PROJECT["project"]["optional-dependencies"]["test"]
    for line in PROJECT["project"]["dependencies"]:
        assert_pinned(runtime, Requirement(line))
    for line in test_extra:
        assert_pinned(everything, Requirement(line))


def test_the_tree_of_the_readme_names_what_is_there() -> None:
    (tree,) = re.findall(r"^```\n(octavo\.py .*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    named, folder = set[str](), ""
    for indent, name in re.findall(r"^( *)(\S+)", tree, re.MULTILINE):
        folder = folder if indent else name
        named.add(folder + name if indent else name)
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert {path.parent.relative_to(ROOT).as_posix() + "/" for path in modules()} <= named


def test_ci_runs_the_test_command_of_the_readme() -> None:
    commands = [
        line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("python3 -m venv .venv")
    ]
    assert commands == ["python3 -m venv .venv && .venv/bin/pip install -r tests/requirements.lock && .venv/bin/pytest"]
    assert re.search(r"^test_command=.*README\.md", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)


def pip(*arguments: str) -> None:
    run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments])


def run(
    command: list[str | Path], *, cwd: Path = ROOT, env: dict[str, str] | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    environment = {
        key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PIP_REQUIRE_VIRTUALENV"}
    }
    result = subprocess.run(
        command, cwd=cwd, env=environment | (env or {}), capture_output=True, text=True, timeout=600
    )
    assert result.returncode == 0 or not check, result.stdout + result.stderr
    return result


def site_packages(environment: Path) -> Path:
    (folder,) = environment.glob("lib/python*/site-packages")
    return folder


def no_writable_folder(tmp_path: Path) -> dict[str, str]:
    """An environment in which no folder of the user can be made (a file stands in the way, even for root)."""
    file = tmp_path / "file"
    file.touch()
    return {"HOME": str(file), "XDG_CACHE_HOME": str(file), "OCTAVO_CACHE": str(file / "cache")}


def modules() -> list[Path]:
    """Every module that the wheel must hold."""
    found = (path for part in PARTS for path in (ROOT / part).rglob("*.py"))
    return [path for path in found if not path.is_relative_to(NOT_INSTALLED)]


def files_below(folder: Path) -> set[str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix() for path in paths}


def imported_names() -> Iterator[str]:
    """The top-level name of every absolute import in the tree."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                yield node.module.partition(".")[0]


def pins(lock: Path) -> dict[str, str]:
    """Package name to exact version; each package has one version, whatever the platform and the Python."""
    found = re.findall(r"^([a-z0-9-]+)==([^\s;]+)", lock.read_text(), re.MULTILINE)
    assert len(found) == len(dict(found))
    return dict(found)


def assert_pinned(versions: dict[str, str], requirement: Requirement) -> None:
    version = versions[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(version, prereleases=True), f"{requirement} is locked at {version}"
