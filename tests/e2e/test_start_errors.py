"""What cannot be served ends with one clear line on stderr, exit code 1 and no traceback."""

import socket
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.e2e.processes import run_to_end
from tests.gguf_parts import write_part
from tests.tiny.models import write_out, write_tiny_llama


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_llama(tmp_path / "tiny.gguf")


def error_line(*arguments: str) -> str:
    """The last line of a start that must fail; the lines before tell the stages of loading."""
    result = run_to_end("serve", *arguments, "--port", "0")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("octavo: ")]
    assert len(lines) == 1
    assert result.stderr.rstrip().endswith(lines[0])
    return lines[0]


def test_a_truncated_file(model: Path) -> None:
    model.write_bytes(model.read_bytes()[:-4000])
    assert str(model) in error_line(str(model))


def test_a_text_file_called_gguf(tmp_path: Path) -> None:
    path = tmp_path / "notes.gguf"
    path.write_text("Dear diary, today I made a model.\n" * 20)
    assert "not a GGUF file" in error_line(str(path))


def test_a_huge_tensor_count(model: Path) -> None:
    content = bytearray(model.read_bytes())
    content[8:16] = struct.pack("<Q", 2**62)
    model.write_bytes(content)
    assert str(model) in error_line(str(model))


def with_first_type(path: Path, number: int) -> None:
    """Write another type number into the file's first tensor entry: name, dimensions, then the type."""
    content = path.read_bytes()
    offset = gguf.GGUFReader(path).tensors[0].field.offset
    name = struct.unpack_from("<Q", content, offset)[0]
    dimensions = struct.unpack_from("<I", content, offset + 8 + name)[0]
    place = offset + 8 + name + 4 + 8 * dimensions
    path.write_bytes(content[:place] + struct.pack("<I", number) + content[place + 4 :])


def test_an_unknown_weight_type(model: Path) -> None:
    with_first_type(model, 999)
    assert "999" in error_line(str(model))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"attention.causal": False}, "llama.attention.causal = False"),
        ({"feed_forward_length": 2**31 - 16}, "blk.0.ffn_gate.weight has shape (96, 64), not (2147483632, 64)"),
        ({"attention.head_count": 2**31 - 2, "attention.head_count_kv": 1}, "blk.0.attn_q.weight has shape"),
        ({"rope.freq_base": 1e-38}, "llama.rope.freq_base' is not above 0"),
    ],
)
def test_metadata_that_mean_another_model(model: Path, tmp_path: Path, changes: dict[str, object], named: str) -> None:
    """Numbers that no memory could hold, too: they contradict the tensors, and nothing is allocated by them."""
    added = {f"llama.{key}": value for key, value in changes.items() if key == "attention.causal"}
    changed = write_part(model, tmp_path / "changed.gguf", lambda name: True, changes, added=added)
    assert named in error_line(str(changed))


def test_a_tensor_that_its_family_does_not_have(model: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.gguf"
    write_part(model, changed, lambda name: True, tensors={"blk.0.attn_q_norm.weight": np.full(16, 5, np.float32)})
    assert f"{changed} has the tensor blk.0.attn_q_norm.weight" in error_line(str(changed))


def test_an_unknown_architecture(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, "mamba")
    writer.add_tokenizer_model("gpt2")
    write_out(writer)
    assert "'mamba'" in error_line(str(path))


def test_a_type_that_waits_for_a_later_version(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf", hidden=256, ffn=256)
    with_first_type(path, gguf.GGMLQuantizationType.IQ3_S)
    assert "IQ3_S" in error_line(str(path))


def test_a_port_in_use(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run_to_end("serve", str(model), "--port", str(port))
    assert result.returncode == 1
    assert str(port) in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--ctx", "100000"], "--ctx"),
        (["--threads", "0"], "threads"),
        (["--isa", "mmx"], "mmx"),
        (["--lanes", "0"], "lanes"),
    ],
)
def test_a_bad_flag(model: Path, flags: list[str], named: str) -> None:
    assert named in error_line(str(model), *flags)


def test_a_chat_template_that_does_not_compile(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text("{% endif %}")
    assert f"The chat template {path} cannot be compiled" in error_line(str(model), "--chat-template", str(path))


def test_a_name_that_is_nothing() -> None:
    assert "smollm2-135m" in error_line("smolm2-135m")
