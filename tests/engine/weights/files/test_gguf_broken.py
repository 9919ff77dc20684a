"""Hostile and damaged files: each is refused with one clear sentence, and nothing is read that is not there."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ModelError, ModelFileError, ModelNotFoundError, UnsupportedModelError
from engine.weights.files.gguf import GgufFile
from engine.weights.files.gguf_values import MAX_HEADER_BYTES
from engine.weights.files.mapped_bytes import checked_extent
from tests.engine.weights.gguf_bytes import (
    ARCHITECTURE,
    ARRAY,
    BOOL,
    F32,
    I32,
    STRING,
    U8,
    U32,
    array,
    gguf_bytes,
    pair,
    sound_file,
    string,
    tensor,
    u32,
    u64,
)

HUGE = 2**64 - 1
DATA = bytes(256)


def with_tensors(*tensors: bytes, data: bytes = DATA) -> bytes:
    return gguf_bytes(tensors=tensors, data=data)


def with_pairs(*pairs: bytes) -> bytes:
    return gguf_bytes(pairs=(ARCHITECTURE, *pairs))


def aligned(alignment: int) -> bytes:
    return with_pairs(pair("general.alignment", U32, u32(alignment)))


def nested(levels: int) -> bytes:
    value = array(I32, 0, b"")
    for _ in range(levels - 1):
        value = array(ARRAY, 1, value)
    return with_pairs(pair("deep", ARRAY, value))


# name: (content of the file, words of the message)
BROKEN = {
    "a text file": (b"Hello, this is no model.\n", r"not a GGUF file: it begins with b'Hell'"),
    "an empty file": (b"", "is empty"),
    "three bytes": (b"GGU", "not a GGUF file"),
    "a magic and no more": (b"GGUF", "the version needs 4 bytes"),
    "no counts": (b"GGUF\3\0\0\0", "the number of tensors"),
    "version 1": (gguf_bytes(version=u32(1)), "GGUF version 1"),
    "version 4": (gguf_bytes(version=u32(4)), "GGUF version 4"),
    "big endian": (gguf_bytes(version=b"\0\0\0\3"), "big-endian"),
    "more tensors than bytes": (gguf_bytes(tensor_count=HUGE), f"list of {HUGE} tensors"),
    "2**62 tensors": (gguf_bytes(tensor_count=2**62), "tensors"),
    "one tensor too many": (
        gguf_bytes(tensors=[tensor("t", [4])], data=DATA, tensor_count=2),
        "the name of a tensor is empty",
    ),
    "more pairs than bytes": (gguf_bytes(pair_count=HUGE), f"list of {HUGE} metadata pairs"),
    "a key longer than the file": (with_pairs(string("k", length=60000) + u32(U32)), "a metadata key needs 60000"),
    "a key of 2**64-1 bytes": (with_pairs(string("k", length=HUGE) + u32(U32)), f"claims {HUGE} bytes"),
    "a key that is not UTF-8": (with_pairs(pair(b"\xff\xfe", U32, u32(1))), "key is not UTF-8"),
    "a key twice": (with_pairs(ARCHITECTURE), r"'general\.architecture' twice"),
    "an unknown value type": (with_pairs(pair("k", 13, u64(0))), "unknown type 13"),
    "an unknown element type": (with_pairs(pair("k", ARRAY, array(99, 0, b""))), "unknown type 99"),
    "a boolean of 2": (with_pairs(pair("k", BOOL, b"\2")), "neither 0 nor 1"),
    "a string of 2**64-1 bytes": (with_pairs(pair("k", STRING, string("x", length=HUGE))), f"needs {HUGE} bytes"),
    "a string one byte too long": (
        gguf_bytes(pairs=[pair("k", STRING, string("x", length=2))], alignment=1),
        "'k' needs 2 bytes .* only 1 are left",
    ),
    "an array of 2**64-1 numbers": (with_pairs(pair("k", ARRAY, array(F32, HUGE, b""))), f"needs {HUGE * 4} bytes"),
    "an array of 2**62 numbers": (with_pairs(pair("k", ARRAY, array(F32, 2**62, b""))), f"needs {2**64} bytes"),
    "an array of 2**61 strings": (with_pairs(pair("k", ARRAY, array(STRING, 2**61, b""))), f"needs {2**64} bytes"),
    "an array of 2**60 arrays": (with_pairs(pair("k", ARRAY, array(ARRAY, 2**60, b""))), "arrays in 'k'"),
    "a string that takes the next one's length": (
        gguf_bytes(pairs=[pair("k", ARRAY, array(STRING, 2, string(bytes(9))))], alignment=1),
        "the array 'k' needs 9 bytes",
    ),
    "arrays nested five deep": (nested(5), "nested deeper than 4"),
    "alignment 0": (aligned(0), r"general\.alignment is 0"),
    "alignment 4": (aligned(4), "not a power of two"),
    "alignment 48": (aligned(48), "not a power of two"),
    "alignment 2 MiB": (aligned(2 << 20), "not a power of two"),
    "alignment beyond int32": (aligned(2**31), r"'general\.alignment' is not from 0"),
    "an alignment of text": (with_pairs(pair("general.alignment", STRING, string("32"))), "is not an integer"),
    "no dimensions": (with_tensors(tensor("t", [])), "0 dimensions"),
    "five dimensions": (with_tensors(tensor("t", [1] * 5)), "5 dimensions"),
    "2**32-1 dimensions": (with_tensors(string("t") + u32(2**32 - 1) + bytes(64)), f"{2**32 - 1} dimensions"),
    "an empty dimension": (with_tensors(tensor("t", [4, 0])), "empty dimension"),
    "dimensions whose product is 2**64": (with_tensors(tensor("t", [2**32, 2**32])), f"needs {2**66} bytes"),
    "dimensions whose product wraps to 4": (with_tensors(tensor("t", [2**63 + 2, 2])), "needs"),
    "rows of half a block": (with_tensors(tensor("t", [48], 2)), "48 elements, which is no multiple of the 32"),
    "a removed type": (with_tensors(tensor("t", [32], 4)), "type 4, which this version does not know"),
    "type 2**32-1": (with_tensors(tensor("t", [32], 2**32 - 1)), "does not know"),
    "an offset beyond the file": (with_tensors(tensor("t", [4], 0, 2**63)), "'t' needs 16 bytes .* only 0"),
    "an offset that wraps": (with_tensors(tensor("t", [4], 0, 2**64 - 32)), "'t' needs 16 bytes"),
    "an offset between alignments": (with_tensors(tensor("t", [4], 0, 16)), "multiple of 32"),
    "a tensor one byte too long": (with_tensors(tensor("t", [64]), data=DATA[:-1]), "needs 256 bytes .* only 255"),
    "two tensors of one name": (with_tensors(tensor("t", [4]), tensor("t", [4], 0, 32)), "two tensors called 't'"),
    "tensors that overlap": (with_tensors(tensor("b", [4], 0, 32), tensor("a", [16])), "'a' and 'b' overlap"),
    "a tensor's name that is not UTF-8": (with_tensors(tensor(b"\xff", [4])), "name of a tensor is not UTF-8"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_in_one_sentence_that_names_it(tmp_path: Path, name: str) -> None:
    content, message = BROKEN[name]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises((ModelFileError, UnsupportedModelError), match=message) as caught:
        GgufFile.open(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_name_with_terminal_codes_is_shown_escaped(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(with_tensors(tensor("\x1b[31m\n", [0])))
    with pytest.raises(ModelFileError) as caught:
        GgufFile.open(path)
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)


# what a header asks for: words of the message
BOMBS = {
    "a long string": (pair("k", STRING, string("", length=MAX_HEADER_BYTES)), f"needs {MAX_HEADER_BYTES} bytes"),
    "many numbers": (pair("k", ARRAY, array(U8, MAX_HEADER_BYTES, b"")), f"needs {MAX_HEADER_BYTES} bytes"),
    "many strings": (pair("k", ARRAY, array(STRING, MAX_HEADER_BYTES // 8, b"")), f"needs {MAX_HEADER_BYTES} bytes"),
    "many arrays": (pair("k", ARRAY, array(ARRAY, MAX_HEADER_BYTES // 12, b"")), "arrays in 'k'"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_large_file_cannot_fill_the_memory_with_its_header(tmp_path: Path, name: str) -> None:
    content, message = BOMBS[name]
    path = tmp_path / "bomb.gguf"
    path.write_bytes(with_pairs(content))
    os.truncate(path, 3 * MAX_HEADER_BYTES)  # zeros that take no room on the disk
    with pytest.raises(ModelFileError, match=message):
        GgufFile.open(path)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no file .*missing\.gguf"):
        GgufFile.open(tmp_path / "missing.gguf")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is a folder"):
        GgufFile.open(tmp_path)


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match="not a regular file"):
        GgufFile.open(tmp_path / "pipe.gguf")


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(ModelFileError, match="cannot be read: Not a directory"):
        GgufFile.open(tmp_path / "file" / "model.gguf")


def test_a_sound_file_cut_anywhere_in_its_header_is_refused(tmp_path: Path) -> None:
    content = sound_file()
    path = tmp_path / "cut.gguf"
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(ModelError):
            GgufFile.open(path)


@pytest.mark.parametrize(("start", "size"), [(0, 11), (10, 1), (11, 0), (-1, 2), (3, -1), (2**64, 2**64)])
def test_an_extent_outside_the_file_is_refused(start: int, size: int) -> None:
    with pytest.raises(ModelFileError, match="needs"):
        checked_extent(start, size, 10, "it", "file")


def test_an_extent_inside_the_file_gives_its_end() -> None:
    assert checked_extent(0, 10, 10, "it", "file") == 10
    assert checked_extent(10, 0, 10, "it", "file") == 10


SOUND = sound_file()
positions = st.integers(0, len(SOUND) - 1)
hostile_integers = st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, HUGE])
patches = st.one_of(
    st.tuples(positions, st.binary(min_size=1, max_size=4)),
    st.tuples(positions, hostile_integers.map(u64)),
    st.tuples(positions, st.sampled_from([0, 1, 4, 8, 9, 31, 2**31, 2**32 - 1]).map(u32)),
)


@pytest.fixture(scope="module")
def damaged_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged") / "model.gguf"


@given(damage=st.lists(patches, min_size=1, max_size=4), size=st.none() | st.integers(0, len(SOUND)))
@settings(max_examples=400, deadline=None)
def test_no_damage_raises_anything_but_a_model_error(
    damaged_path: Path, damage: Sequence[tuple[int, bytes]], size: int | None
) -> None:
    content = bytearray(SOUND)
    for position, replacement in damage:
        content[position : position + len(replacement)] = replacement
    damaged_path.write_bytes(content[:size])
    try:
        file = GgufFile.open(damaged_path)
    except ModelError:
        return
    with file:
        accept_only_what_is_there(file, len(content[:size]))


def accept_only_what_is_there(file: GgufFile, size: int) -> None:
    """Of every file that opens: the tensors lie within it, apart from each other, and all their bytes can be read."""
    assert sum(info.nbytes for info in file.tensors.values()) <= size
    for name, info in file.tensors.items():
        assert 0 <= info.offset <= info.offset + info.nbytes <= size
        assert len(file.raw(name).tobytes()) == info.nbytes
