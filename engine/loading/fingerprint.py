"""The identity of a model as it is served: a hash of all that decides a request's bits."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from engine.api.config import EngineConfig
from engine.version import VERSION
from engine.weights.digest import metadata_digest
from engine.weights.draft_head import without_draft
from engine.weights.files.weights_file import WeightsFile


class Identity(NamedTuple):
    """Who a loaded model is."""

    content: str  # of its trunk: a draft head changes no bit
    fingerprint: str  # as answers tell it
    cache: str  # what a prefix cache on disk belongs to


def identify(
    file: WeightsFile, digests: Mapping[str, bytes], options: EngineConfig, chat_template: str | None
) -> Identity:
    """The identity of a model file that is run with these options.

    digests: of the file's tensors; chat_template: the one that takes the place of the file's own, if any.
    """
    how, content = numerics(options.activations, options.kv_type), content_digest(file, digests)
    without = without_draft(file)
    trunk = content if without is file else content_digest(without, digests)
    cache = fingerprint(content, how)
    if options.cache_dir is not None:  # the sources are not read where nothing is kept
        cache += f" {source_digest()}"
    return Identity(trunk, fingerprint(trunk, f"{how}{chat_template or ''}"), cache)


def content_digest(file: WeightsFile, digests: Mapping[str, bytes]) -> str:
    """Hash the metadata and the tensors of a model, all their bytes, in whatever order its file has them.

    digests: of each tensor, as engine/weights/digest.py takes them.
    """
    digest = blake3(f"{file.architecture} ".encode() + metadata_digest(file.metadata))
    for name in sorted(file.tensors):
        info = file.tensors[name]
        digest.update(f" {name} {info.shape} {info.type} ".encode() + digests[name])
    return digest.hexdigest()


def fingerprint(content: str, how: str) -> str:
    """Hash the content of a model, how it is run, and our version.

    `how`: the types of activations, keys and values, and the chat template where it is not the file's. Tier, threads
    and lanes are left out: they change no bit.
    """
    return f"fp_{blake3(f'octavo {VERSION} {how} {content}'.encode()).hexdigest()[:16]}"


def numerics(activations: str, kv_type: str) -> str:
    """The part of `how` that says in which types a model runs."""
    return f"{activations} {kv_type}"


def source_digest() -> str:
    """Hash the code that computes keys and values: where it changes, those that were kept may have other bits."""
    root, digest = Path(__file__).parents[2], blake3()
    for folder in ("kernels", "engine/families"):
        for source in sorted((root / folder).rglob("*.py")):
            digest.update(f"{source.relative_to(root)} ".encode() + source.read_bytes())
    return digest.hexdigest()[:16]
