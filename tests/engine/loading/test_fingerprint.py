"""Models that differ in any byte have different identities, and none takes what another has kept."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.api.config import EngineConfig
from engine.api.prompt import Prompt
from engine.api.request import FinishEvent, Request
from engine.api.sampling import Sampling
from engine.errors import ModelFileError
from engine.loading.fingerprint import content_digest, fingerprint, source_digest
from engine.loading.load_runner import load_runner
from engine.model import ServedModel, load_model
from engine.weights.catalogue import ResolvedModel
from engine.weights.digest import PIECE_BYTES, metadata_digest, pieces_of, tensor_digests
from engine.weights.files.gguf import GgufFile
from engine.weights.files.weights_file import TensorInfo
from engine.weights.open_weights import open_weights
from tests.engine.runners import GOLDEN
from tests.tiny.models import write_tiny_llama


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny.gguf", types="Q4_1", context=512, tied=False)


def identity(path: Path) -> str:
    with open_weights(path) as file:
        return fingerprint(content_digest(file, tensor_digests(file, 2, lambda done: None)), "int8 f16")


def other_byte(path: Path, name: str, place: int) -> Path:
    """A copy that differs in one byte of one tensor."""
    with GgufFile.open(path) as file:
        info = file.tensors[name]
    content = bytearray(path.read_bytes())
    content[info.offset + place % info.nbytes] ^= 1
    copy = path.with_name("other.gguf")
    copy.write_bytes(content)
    return copy


def model_of(path: Path, **options: object) -> ServedModel:
    return load_model(str(path), EngineConfig(threads=1, lanes=1, **options), lambda stage, done: None)  # type: ignore[arg-type]


def test_each_byte_of_each_tensor_counts(tiny: Path) -> None:
    own = identity(tiny)
    with GgufFile.open(tiny) as file:
        names = list(file.tensors)
    places = np.random.default_rng(0).integers(0, 1 << 20, len(names)).tolist()
    others = [identity(other_byte(tiny, name, place)) for name, place in zip(names, places, strict=True)]
    assert len({own, *others}) == len(names) + 1
    assert identity(other_byte(tiny, "token_embd.weight", -1)) not in (own, *others)


@pytest.mark.parametrize("activations", ["int8", "f32"])
def test_a_loader_takes_the_digests_that_reading_the_file_gives(tiny: Path, activations: str) -> None:
    with open_weights(tiny) as file:
        loaded = load_runner(file, EngineConfig(threads=1, activations=activations), lambda stage, done: None)
        loaded.runner.close()
        assert loaded.digests == tensor_digests(file, 1, lambda done: None)


def test_a_served_model_has_the_fingerprint_that_is_shown(tiny: Path) -> None:
    model = model_of(tiny)
    model.service._runner.close()
    assert model.fingerprint == identity(tiny)
    other = model_of(other_byte(tiny, "blk.1.ffn_down.weight", -1))
    other.service._runner.close()
    assert other.fingerprint != model.fingerprint


def test_members_of_long_arrays_count() -> None:
    texts = [f"token {number}" for number in range(10_000)]
    metadata = {"a": texts, "b": np.arange(10_000), "c": 1, "d": [np.zeros(3), ["x"]]}
    changed: list[dict[str, object]] = [
        {"a": [*texts[:5000], "other", *texts[5001:]]},
        {"a": [*texts[:5000], "token 5000t", "oken 5001", *texts[5002:]]},  # the same letters, cut elsewhere
        {"b": np.where(np.arange(10_000) == 5000, 1, np.arange(10_000))},
        {"b": np.arange(10_000, dtype=np.int32)},
        {"c": True},
        {"c": 1.0},
        {"c": "1"},
        {"d": [np.zeros(3), ["y"]]},
        {"e": 0},
    ]
    digests = {metadata_digest({**metadata, **change}) for change in changed}
    assert len(digests | {metadata_digest(metadata)}) == len(changed) + 1
    assert metadata_digest(dict(reversed(metadata.items()))) == metadata_digest(metadata)


@pytest.mark.parametrize(
    ("shape", "row_bytes"),
    [((5,), 20), ((40, 64), 256), ((16384, 1024), 2048), ((3, 100, 64), 36), ((7, 1 << 20), 1 << 22)],
)
def test_pieces_are_all_rows_in_order_within_the_bound_of_memory(shape: tuple[int, ...], row_bytes: int) -> None:
    rows = int(np.prod(shape[:-1]))
    pieces = list(pieces_of(TensorInfo("x", shape, "F32", 0, rows * row_bytes)))
    assert [piece.first for piece in pieces] == [0, *np.cumsum([piece.rows for piece in pieces])[:-1]]
    assert sum(piece.rows for piece in pieces) == rows and all(piece.first % 16 == 0 for piece in pieces)
    assert max(piece.rows * row_bytes for piece in pieces) <= max(PIECE_BYTES, 16 * row_bytes)


def answered(model: ServedModel, prompt: tuple[int, ...]) -> tuple[list[int], int]:
    """The tokens of an answer, and how many of its prompt's were cached; the model is stopped, and saves its cache."""

    request = Request(id="r", prompt=Prompt(prompt), max_tokens=12, sampling=Sampling(temperature=0.0))

    async def answer() -> tuple[list[int], int]:
        model.service.start()
        try:
            events = [event async for event in model.service.submit(request)[0]]
        finally:
            await model.service.stop(drain_seconds=1)
        end = events.pop()
        assert isinstance(end, FinishEvent)
        return [token.id for event in events for token in getattr(event, "tokens", ())], end.cached_tokens

    return asyncio.run(answer())


def with_last_rows_negated(path: Path, name: str) -> Path:
    with GgufFile.open(path) as file:
        info = file.tensors[name]
    content, half = bytearray(path.read_bytes()), info.offset + info.nbytes // 2
    values = np.frombuffer(content, np.float32, info.nbytes // 8, half)
    content[half : half + info.nbytes // 2] = (-values).tobytes()
    copy = path.with_name("negated.gguf")
    copy.write_bytes(content)
    return copy


def test_a_cache_folder_shared_by_two_models_gives_each_its_own_text(tmp_path: Path) -> None:
    """Keys and values of the one would otherwise be taken by the other, which differs in the last rows of a tensor."""
    tiny, prompt, shared = (
        write_tiny_llama(tmp_path / "floats.gguf", context=512),
        tuple(range(40, 240)),
        tmp_path / "cache",
    )
    other = with_last_rows_negated(tiny, "blk.0.attn_v.weight")
    cold = {path: answered(model_of(path), prompt)[0] for path in (tiny, other)}
    assert cold[tiny] != cold[other]
    for path in (tiny, other):
        assert answered(model_of(path, cache_dir=shared), prompt) == (cold[path], 0)
    for path in (tiny, other):
        assert answered(model_of(path, cache_dir=shared), prompt) == (cold[path], 192)


def test_a_catalogue_model_that_is_not_what_was_fetched_is_refused(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its hash is checked when it is fetched; a byte that has changed since has the same size."""
    with open_weights(tiny) as file:
        content = content_digest(file, tensor_digests(file, 1, lambda done: None))
    damaged = other_byte(tiny, "blk.0.attn_k.weight", 100)
    monkeypatch.setattr("engine.model.resolve_model", lambda argument: ResolvedModel(Path(argument), "tiny", content))
    model_of(tiny).service._runner.close()
    with pytest.raises(ModelFileError, match=r"other\.gguf is not the tiny that was fetched; remove it"):
        model_of(damaged)


def test_what_is_kept_belongs_to_the_code_that_computed_it(tiny: Path, tmp_path: Path) -> None:
    models = [model_of(tiny), model_of(tiny, cache_dir=tmp_path)]
    for model in models:
        model.service._runner.close()
    assert models[0].fingerprint == models[1].fingerprint
    assert models[1].service._config.cache_identity == f"{models[0].fingerprint} {source_digest()}"


@pytest.fixture
def kept(tiny: Path) -> Iterator[GgufFile]:
    with GgufFile.open(tiny) as file:
        yield file


def test_a_file_that_is_cut_while_it_is_loaded_is_refused(kept: GgufFile) -> None:
    """A page of a mapping that is gone would end the process."""
    last = max(kept.tensors.values(), key=lambda info: info.offset)
    with kept.path.open("r+b") as file:
        file.truncate(last.offset)
    with pytest.raises(ModelFileError, match=r"tiny\.gguf was cut short while it was in use"):
        load_runner(kept, EngineConfig(threads=1), lambda stage, done: None)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("llama_gqa", "llama.feed_forward_length", 2**31 - 16),
        ("llama_gqa", "llama.attention.head_count", 2**31 - 2),
        ("llama_gqa", "llama.embedding_length", 2**31 - 16),
        ("llama_gqa", "llama.block_count", 1024),
        ("qwen3_moe", "qwen3moe.expert_count", 1 << 16),
        ("qwen3_moe", "qwen3moe.expert_feed_forward_length", 2**31 - 16),
        ("qwen3_5_moe", "qwen35moe.ssm.time_step_rank", 1 << 20),
    ],
)
def test_numbers_that_the_tensors_contradict_take_no_memory(name: str, key: str, value: int) -> None:
    with open_weights(GOLDEN / name / "model.gguf") as file:
        file.metadata[key] = value  # type: ignore[index]
        with pytest.raises(ModelFileError) as caught:
            load_runner(file, EngineConfig(threads=1), lambda stage, done: None)
    assert "\n" not in str(caught.value)


def test_more_memory_than_there_is_ends_in_one_line(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_much(*arguments: object, **named: object) -> None:
        raise MemoryError

    monkeypatch.setattr("engine.families.dense.allocate_state", too_much)
    with (
        pytest.raises(Exception, match=r"^There is too little memory for .*tiny\.gguf; free some"),
        open_weights(tiny) as file,
    ):
        load_runner(file, replace(EngineConfig(), threads=1), lambda stage, done: None)
