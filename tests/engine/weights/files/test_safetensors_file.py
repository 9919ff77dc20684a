"""Sound safetensors files are read, broken ones are refused in one sentence, and indexes lead nowhere else."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from engine.errors import ModelError, ModelFileError, ModelNotFoundError
from engine.weights.files.safetensors_file import SafetensorsFile
from engine.weights.safetensors_folder import SafetensorsShards
from tests.engine.weights.safetensors_bytes import Tensors, safetensors_bytes, with_header, write_shards

MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4)
VECTOR = np.array([1, 2], np.float16)
PAIR: Tensors = {"m": MATRIX, "v": VECTOR}


def entry(dtype: object = "F32", shape: object = (3, 4), offsets: object = (0, 48)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def header(**entries: object) -> bytes:
    return with_header(json.dumps(entries).encode(), bytes(48))


BROKEN: dict[str, tuple[bytes, str]] = {
    "an empty file": (b"", "is empty"),
    "half a length": (b"\1\0\0", "the length of the header needs 8 bytes"),
    "a header beyond the file": (with_header(b"{}", length=100), "the header needs 100 bytes"),
    "a header of 2**63 bytes": (with_header(b"{}", length=2**63), "claims 9223372036854775808 bytes"),
    "a header that is no JSON": (with_header(b"{]"), "not sound JSON"),
    "a header that is not UTF-8": (with_header(b'{"\xff": 1}'), "not sound JSON"),
    "a header that is a list": (with_header(b"[]"), "no JSON object"),
    "a header that is nested deeply": (with_header(b"[" * 100_000), "nested too deeply"),
    "a tensor that is there twice": (with_header(b'{"a": 1, "a": 2}'), "twice"),
    "a number that is none": (with_header(b'{"a": NaN}'), "no number of JSON"),
    "a tensor that is a number": (header(m=1), "does not say what the tensor 'm' is"),
    "a tensor without shape": (header(m={"dtype": "F32", "data_offsets": [0, 48]}), "does not say"),
    "a type that is not known": (header(m=entry("F128")), "of the type 'F128'"),
    "a type that is a list": (header(m=entry(["F32"])), "of the type"),
    "a negative dimension": (header(m=entry(shape=[-3, -4])), "no list of sizes"),
    "a dimension of text": (header(m=entry(shape=["3", 4])), "no list of sizes"),
    "a dimension of true": (header(m=entry(shape=[True, 12])), "no list of sizes"),
    "a dimension of 3.0": (header(m=entry(shape=[3.0, 4])), "no list of sizes"),
    "a dimension of 4,000 digits": (header(m=entry(shape=[10**3999, 12])), "no list of sizes"),
    "an offset of 4,000 digits": (header(m=entry("U8", [10**3999], [0, 10**3999])), "no list of sizes"),
    "17 dimensions": (header(m=entry(shape=[1] * 16 + [12])), "no list of sizes"),
    "three offsets": (header(m=entry(offsets=[0, 24, 48])), "no list of sizes"),
    "offsets that go backwards": (header(m=entry(offsets=[48, 0])), "cannot take -48 bytes"),
    "a shape too large for its bytes": (header(m=entry(shape=[4, 4])), "cannot take 48 bytes"),
    "a shape whose product wraps": (header(m=entry(shape=[2**62, 4, 3])), "cannot take 48 bytes"),
    "tensors that overlap": (header(a=entry(), b=entry()), "a gap or an overlap before the tensor 'b'"),
    "a gap before a tensor": (header(m=entry(shape=[11], offsets=[4, 48])), "a gap or an overlap"),
    "bytes that belong to no tensor": (header(m=entry(shape=[11], offsets=[0, 44])), "4 bytes after the last"),
    "a tensor beyond the file": (header(m=entry(shape=[13], offsets=[0, 52])), "'m' needs 52 bytes"),
    "a tensor that is cut": (safetensors_bytes(PAIR)[:-1], "'v' needs 4 bytes"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_in_one_sentence_that_names_it(tmp_path: Path, name: str) -> None:
    content, message = BROKEN[name]
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=re.escape(message)) as caught:
        SafetensorsFile(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path, content = tmp_path / "cut.safetensors", safetensors_bytes(PAIR)
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(ModelFileError):
            SafetensorsFile(path)


def test_rows_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors_bytes(PAIR))
    file = SafetensorsFile(path)
    assert (file.tensors["m"].shape, file.tensors["m"].dtype) == ((3, 4), "F32")
    for numbers in ([1, 2], [2, 0], [0, 2, 1], [1]):
        assert np.array_equal(file.rows("m", np.array(numbers)).view(np.float32), MATRIX[numbers])
    assert np.array_equal(file.rows("v", np.array([0])).view(np.float16)[0], VECTOR)
    view = file.view("m")
    assert not view.flags.writeable
    file.close()
    assert view.view(np.float32)[1, 0] == 4  # the view keeps the mapping


def test_shards_are_read_by_their_index(tmp_path: Path) -> None:
    write_shards(tmp_path, {"a.safetensors": {"m": MATRIX}, "b.safetensors": {"v": VECTOR}})
    shards = SafetensorsShards(tmp_path)
    assert set(shards.tensors) == {"m", "v"}
    assert np.array_equal(shards.rows("v", np.array([0])).view(np.float16)[0], VECTOR)
    (tmp_path / "b.safetensors").write_bytes(b"")
    with pytest.raises(ModelFileError, match=r"b\.safetensors was cut short"):
        shards.check_size()
    with pytest.raises(ModelFileError, match=r"b\.safetensors was cut short"):
        shards.rows("v", np.array([0]))


def test_a_tensor_that_the_index_forgot_is_there_too(tmp_path: Path) -> None:
    write_shards(tmp_path, {"a.safetensors": {"m": MATRIX}, "b.safetensors": {"v": VECTOR}})
    (tmp_path / "b.safetensors").write_bytes(safetensors_bytes({"v": VECTOR, "forgotten": MATRIX}))
    assert set(SafetensorsShards(tmp_path).tensors) == {"m", "v", "forgotten"}


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    write_shards(tmp_path, {"a.safetensors": {"m": MATRIX}, "b.safetensors": {"v": VECTOR}})
    (tmp_path / "b.safetensors").write_bytes(safetensors_bytes({"v": VECTOR, "m": MATRIX}))
    with pytest.raises(ModelFileError, match=r"both hold the tensor 'm'"):
        SafetensorsShards(tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path, {"a.safetensors": {"m": MATRIX}, "b.safetensors": {"v": VECTOR}})
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(ModelNotFoundError, match=r"b\.safetensors is missing"):
        SafetensorsShards(tmp_path)


def test_a_tensor_that_is_not_where_the_index_says_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path, {"a.safetensors": {"m": MATRIX}}, index={"w": "a.safetensors"})
    with pytest.raises(ModelFileError, match=r"a\.safetensors lacks the tensor 'w'"):
        SafetensorsShards(tmp_path)


@pytest.mark.parametrize(
    "name", ["../a.safetensors", "/etc/a.safetensors", "sub/a.safetensors", "a.bin", "..", "", "\0.safetensors", 7]
)
def test_an_index_leads_nowhere_but_to_its_own_folder(tmp_path: Path, name: str) -> None:
    write_shards(tmp_path, {}, index={"m": name})
    with pytest.raises(ModelFileError, match="is not the name of a safetensors file"):
        SafetensorsShards(tmp_path)


@pytest.mark.parametrize("index", [[], {}, {"weight_map": []}, {"weight_map": {}}])
def test_an_index_without_places_is_refused(tmp_path: Path, index: object) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelFileError, match=r"has no weight_map|no JSON object"):
        SafetensorsShards(tmp_path)


def test_without_an_index_there_must_be_one_file(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no safetensors file"):
        SafetensorsShards(tmp_path)
    for name in ("a.safetensors", "b.safetensors"):
        (tmp_path / name).write_bytes(safetensors_bytes({"m": MATRIX}))
    with pytest.raises(ModelNotFoundError, match="2 safetensors files and no"):
        SafetensorsShards(tmp_path)


def test_a_file_with_any_byte_changed_is_refused_or_read_within_its_bounds(tmp_path: Path) -> None:
    path, content = tmp_path / "mutant.safetensors", bytearray(safetensors_bytes(PAIR))
    random, outcomes = np.random.default_rng(0), {True: 0, False: 0}
    for _ in range(1500):
        mutant = content.copy()
        for place in random.integers(0, len(content) - VECTOR.nbytes - MATRIX.nbytes, random.integers(1, 4)):
            mutant[place] = random.choice(np.frombuffer(b'0123456789[]{},:"FIU-\xff\0', np.uint8))
        path.write_bytes(mutant)
        try:
            file = SafetensorsFile(path)
        except ModelError as error:
            assert "\n" not in str(error)
            outcomes[False] += 1
        else:
            for name, tensor in file.tensors.items():
                assert tensor.nbytes == 0 or file.rows(name, np.arange(tensor.rows)).nbytes == tensor.nbytes
            outcomes[True] += 1
    assert min(outcomes.values()) > 0
