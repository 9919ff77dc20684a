"""Area files: a model file that is broken, cut or only a part is refused in one sentence that names it."""

import os
import socket
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from engine.api.config import EngineConfig
from engine.errors import ModelError, ModelFileError
from engine.model import load_model
from engine.weights.files.gguf import GgufFile
from engine.weights.open_weights import open_weights
from tests.cases.real import RealServer, serving, tiny_model
from tests.e2e.processes import run_to_end
from tests.engine.weights.gguf_bytes import ARCHITECTURE, gguf_bytes, pair, tensor
from tests.tiny.models import write_out

# By type, the bytes of a zero.
SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 8: 8, 9: 12, 10: 8, 11: 8, 12: 8}


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_model(str(path), EngineConfig(threads=1), lambda stage, share: None)
    message = str(caught.value)
    assert path.name in message and "\n" not in message
    return message


@pytest.mark.parametrize("type_id", SCALARS)
def test_an_empty_key_is_refused_whatever_its_value(tmp_path: Path, type_id: int) -> None:
    """BB-073: a key of no length is an abort."""
    path = tmp_path / "bad.gguf"
    path.write_bytes(gguf_bytes(pairs=[ARCHITECTURE, pair("", type_id, bytes(SCALARS[type_id]))]))
    assert "a metadata key is empty" in refusal(path)


@pytest.mark.parametrize("dimensions", [(0,), (4, 0), (0, 4), (0, 0), (1, 1, 0), (2**63, 0)])
@pytest.mark.parametrize("type_id", [0, 1, 2, 8])
def test_a_dimension_of_zero_is_refused(tmp_path: Path, dimensions: tuple[int, ...], type_id: int) -> None:
    """BB-073: a division by zero, which is a signal and no error."""
    path = tmp_path / "bad.gguf"
    path.write_bytes(gguf_bytes(tensors=[tensor("t", dimensions, type_id)], pairs=[]))
    assert "empty dimension" in refusal(path)
    path.write_bytes(gguf_bytes(tensors=[tensor("", [4], 0)], data=bytes(64)))
    assert "the name of a tensor is empty" in refusal(path)


def test_the_command_ends_with_one_line_and_no_signal(tmp_path: Path) -> None:
    """BB-073: exit code 1, the file's name, no traceback."""
    path = tmp_path / "bad.gguf"
    path.write_bytes(gguf_bytes(tensors=[tensor("t", (4, 0))], pairs=[]))
    result = run_to_end("serve", str(path), "--port", "0")
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("octavo: ") and "bad.gguf" in line]) == 1


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    """BB-076: a short download is read outside of its end, or its missing weights are zeros."""
    path = tiny_model(tmp_path, "plain")
    size = path.stat().st_size
    with GgufFile.open(path) as file:
        data = min(info.offset for info in file.tensors.values())
    cuts = {*range(0, 65), *range(0, data, 11), *range(data - 40, data + 40), *range(data, size, 997), size - 1}
    for length in sorted(cuts, reverse=True):
        os.truncate(path, length)
        with pytest.raises(ModelError) as caught:
            GgufFile.open(path)
        assert path.name in str(caught.value)


def test_a_cut_names_what_is_missing_and_how_much_is_there(tmp_path: Path) -> None:
    """BB-076."""
    path = tiny_model(tmp_path, "plain")
    os.truncate(path, path.stat().st_size - 100)
    message = refusal(path)
    assert "needs" in message and "are left" in message


def test_a_sparse_file_is_no_model(tmp_path: Path) -> None:
    """BB-076: 1 GB of nothing, and a header whose weights are a hole of zeros is read like any other."""
    path = tmp_path / "sparse.gguf"
    path.touch()
    os.truncate(path, 1 << 30)
    assert "not a GGUF file" in refusal(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """BB-076: folders, pipes, sockets, loops of links, links to nothing."""
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "loop.gguf").symlink_to(tmp_path / "loop.gguf")
    (tmp_path / "dangling.gguf").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder.gguf").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket.gguf"))
        for name in ("pipe", "loop", "dangling", "folder", "socket"):
            refusal(tmp_path / f"{name}.gguf")
            with pytest.raises(ModelError):
                GgufFile.open(tmp_path / f"{name}.gguf")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    """BB-076."""
    path = tiny_model(tmp_path, "plain")
    path.chmod(0)
    assert "permissions" in refusal(path)


def test_a_file_that_is_cut_while_it_is_served_ends_answers_and_not_the_server(tmp_path: Path) -> None:
    """BB-076: reading a page that is gone is SIGBUS, the end of the process; here it is an error that says why."""
    path = tiny_model(tmp_path, "plain")
    with serving(path) as server:
        assert server.complete(max_tokens=2, ignore_eos=True)["usage"]["completion_tokens"] == 2
        os.truncate(path, 4096)
        error = server.refusal("/v1/completions", {"prompt": "Hi", "max_tokens": 2}, status=500)
        assert "was cut short while it was in use" in error["message"]
        assert server.http.get("/health").status_code == 200


def split(folder: Path, name: str = "m", **wrong: Any) -> list[Path]:
    """Three parts of a small model, as llama-gguf-split writes them."""
    writer = gguf.GGUFWriter(folder / f"{name}.gguf", "llama", split_max_tensors=1)
    for key in ("a", "b", "c"):
        writer.add_tensor(key, np.ones(32, np.float32))
    write_out(writer)
    return sorted(folder.glob(f"{name}-*.gguf"))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_any_part_of_a_split_model_is_the_whole_model(tmp_path: Path, number: int) -> None:
    """BB-077: one part alone is loaded, and the rest of the weights is whatever was in memory."""
    parts = split(tmp_path)
    assert [part.name for part in parts] == [f"m-{place}-of-00003.gguf" for place in ("00001", "00002", "00003")]
    file = open_weights(parts[number])
    assert sorted(file.tensors) == ["a", "b", "c"]
    for name in file.tensors:
        assert (file.raw(name).view(np.float32) == 1).all()
    file.close()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_part_that_is_missing_is_named(tmp_path: Path, number: int) -> None:
    """BB-077."""
    parts = split(tmp_path)
    parts[number].unlink()
    for part in parts:
        if part != parts[number]:
            assert f"of which {parts[number].name} is missing" in refusal(part)


def test_the_folder_of_a_split_model_is_that_model(tmp_path: Path) -> None:
    """BB-077: it is not three models, of which one is to be chosen; with another beside it, it is."""
    parts = split(tmp_path)
    with pytest.raises(ModelError, match="has no token_embd"):  # of three, not of one
        load_model(str(tmp_path), EngineConfig(threads=1), lambda stage, share: None)
    split(tmp_path, "other")
    with pytest.raises(ModelError, match="holds 6 models") as caught:
        load_model(str(tmp_path), EngineConfig(threads=1), lambda stage, share: None)
    assert parts[0].name in str(caught.value)


@pytest.mark.parametrize("count", [2, 4, 65535])
def test_a_wrong_count_of_parts_is_no_way_in(tmp_path: Path, count: int) -> None:
    """BB-077: whatever split.count says beyond 1, the file is not loaded as if it were whole."""
    path = tiny_model(tmp_path, "plain")
    content = path.read_bytes()
    counted = pair("split.count", 2, count.to_bytes(2, "little"))
    pairs = int.from_bytes(content[16:24], "little")
    path.write_bytes(content[:16] + (pairs + 1).to_bytes(8, "little") + counted + content[24:])
    assert f"one of {count} parts" in refusal(path)


def test_a_model_without_some_of_its_tensors_is_incomplete(plain: RealServer, tmp_path: Path) -> None:
    """BB-077: a part whose count was lost; what is not there is named, and never made up."""
    path = tiny_model(tmp_path, "plain", tied=False)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"blk.0.ffn_up.weight", b"blk.9.ffn_up.weight"))
    with pytest.raises(ModelFileError, match=r"has no tensor blk\.0\.ffn_up\.weight"):
        load_model(str(path), EngineConfig(threads=1), lambda stage, share: None)
    assert plain.complete(max_tokens=1)["usage"]["completion_tokens"] == 1
