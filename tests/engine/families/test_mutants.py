"""Every mutant of a golden model is refused in one line, warned about, other in its logits, or known to be the same.

A mutant differs from its golden model in one metadata key, which is changed, dropped or added, or in one tensor, which
is renamed, dropped or added. See how many there are, and what became of them, with `pytest -rP` of this file.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from engine.errors import ModelError
from engine.families import registry
from engine.families.checks import HARMLESS_PREFIXES, HARMLESS_TENSORS, TOWERS
from engine.families.registry import read_blueprint
from engine.weights.digest import metadata_digest
from engine.weights.draft_head import open_drafting
from engine.weights.files.file_view import FileView
from engine.weights.files.weights_file import TensorInfo, WeightsFile
from tests.engine.families.mutants import logits_of
from tests.engine.runners import GOLDEN, same_bits

FAMILIES = ("llama_biases", "llama3_rope", "llama_yarn", "qwen2", "qwen3", "qwen3_moe", "qwen3_5_moe", "gemma3")
# What may be the same: a limit of what is taken; how embeddings are made of the same states; the numbers of a scaling
# that the model does not have.
LIMITS = ("context_length", "pooling_type")
NUMBERS_OF_YARN = "rope.scaling.yarn_"
ORIGINAL = "rope.scaling.original_context_length"
# What has, where it is not said, the value that the golden models say, by the format's own rules.
FOLLOWS = (
    *("attention.key_length", "attention.value_length", "attention.head_count_kv", "rope.dimension_count"),
    *("rope.freq_base", "rope.freq_base_swa", "full_attention_interval", "vocab_size"),
)


class Mutant(FileView):
    """A model with other metadata, other tensors, and vectors of fives for tensors that its file does not hold."""

    def rows(self, name: str, first: int, count: int) -> NDArray[np.uint8]:
        if name not in self._file.tensors:
            return np.full((1, self.tensors[name].nbytes // 4), 5, np.float32).view(np.uint8)
        return super().rows(name, first, count)


def changes_of(value: object) -> Iterator[object]:
    """Other values of a key's type, and one of another."""
    match value:
        case bool():
            yield not value
        case int():
            yield from (0, value + 1, 2 * value, value // 2, -value, 2**31 - 16, [value])
        case float():
            yield from (0.0, value * 2, value / 2, -value, value * 1e30, float("inf"))
        case str():
            yield from ("", value + "x")
        case np.ndarray():
            yield from (value[::-1], value + 1, value[:-1])
    yield 3 if isinstance(value, str) else "text"


def of_metadata(file: WeightsFile) -> Iterator[tuple[str, str, object]]:
    """Kind of change, key, and its new value; None where it is dropped."""
    prefix = f"{file.architecture}."
    for key, value in file.metadata.items():
        if key.startswith(prefix):
            yield "dropped", key, None
            for change in changes_of(value):
                yield "changed", key, change
    names = {value for group in vars(gguf.Keys).values() if isinstance(group, type) for value in vars(group).values()}
    for name in sorted(name for name in names if isinstance(name, str) and name.startswith("{arch}.")):
        key = name.format(arch=file.architecture, dense="dense_2")
        if key not in file.metadata:
            for added in (3, 0.375, True, np.array([1, 0, 1]), "yarn"):
                yield "added", key, added


def of_tensors(file: WeightsFile) -> Iterator[tuple[str, str, dict[str, TensorInfo]]]:
    """Kind of change, name, and all tensors."""
    tensors = dict(file.tensors)
    for name, info in tensors.items():
        others = {other: info for other, info in tensors.items() if other != name}
        yield "dropped", name, others
        yield "renamed", name, others | {f"{name}.x": replace(info, name=f"{name}.x")}
    hidden = tensors["output_norm.weight"].shape
    patterns = [pattern for pattern in gguf.TENSOR_NAMES.values() if not TOWERS.fullmatch(pattern)]
    for pattern in (*patterns, "v.blk.{bid}.attn_q", "mm.input_projection"):  # the many of towers are alike
        for suffix in ("weight", "bias", "scale"):
            name = f"{pattern.format(bid=0, xid=0)}.{suffix}"
            if name not in tensors:
                yield "added", name, tensors | {name: TensorInfo(name, hidden, "F32", 0, 4 * hidden[0])}


def outcome(mutant: Mutant, expected: NDArray[np.float32]) -> str:
    """What becomes of a mutant."""
    try:
        warnings = read_blueprint(mutant).warnings
        logits = logits_of(mutant)
    except ModelError as error:
        assert "\n" not in str(error) and str(mutant.path.parent) in str(error) and str(error).endswith(".")
        return "refused"
    if warnings:
        assert all("\n" not in warning for warning in warnings)
        return "warned"
    return "same" if same_bits(logits, expected) else "other logits"


def may_be_same(kind: str, key: str, value: object, metadata: Mapping[str, object]) -> bool:
    """Whether a change of this key is on the list of what changes nothing."""
    architecture, _, name = key.partition(".")
    keys = registry.FAMILIES[architecture].keys
    if name in keys.harmless or name.startswith(HARMLESS_PREFIXES) or name in LIMITS:
        return True
    if kind == "dropped":
        return name in FOLLOWS
    if name == ORIGINAL:  # yarn rounds what follows from it to whole pairs
        return True
    if name.startswith(NUMBERS_OF_YARN):
        return metadata.get(f"{architecture}.rope.scaling.type") != "yarn"
    if kind == "changed" and isinstance(value, list):
        return bool(value == [metadata[key]])  # an array of one number for all layers
    if name in keys.refused:  # with a value that changes nothing
        return bool(np.isin(np.asarray(value, np.float64), keys.refused[name]).all())
    return name == "expert_weights_norm" and value is True  # as where the file says nothing


@pytest.mark.parametrize("name", FAMILIES)
def test_no_mutant_is_silently_the_same(name: str) -> None:
    counts: Counter[tuple[str, str, str]] = Counter()
    with open_drafting(GOLDEN / name / "model.gguf") as file:
        expected = logits_of(file)
        for kind, key, value in of_metadata(file):
            metadata = {other: each for other, each in file.metadata.items() if other != key}
            if value is not None:
                metadata[key] = value  # type: ignore[assignment]
            found = outcome(Mutant(file, metadata=metadata), expected)
            assert found != "same" or may_be_same(kind, key, value, file.metadata), (kind, key, value)
            assert metadata_digest(metadata) != metadata_digest(file.metadata)
            counts["key", kind, found] += 1
        for kind, tensor, tensors in of_tensors(file):
            found = outcome(Mutant(file, tensors=tensors), expected)
            is_known = HARMLESS_TENSORS.fullmatch(tensor) is not None
            assert found == "same" if is_known else found in ("refused", "warned", "other logits"), (kind, tensor)
            counts["tensor", kind, found] += 1
    assert {found for _, _, found in counts} >= {"refused", "other logits"}
    print(f"{name}: {sum(counts.values())} mutants")
    for (what, kind, found), count in sorted(counts.items()):
        print(f"    {what} {kind}: {found} {count}")
