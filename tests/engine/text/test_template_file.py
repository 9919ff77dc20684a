"""Templates in files of their own: read whole, or refused in one sentence that names the file."""

import os
import threading
from pathlib import Path

import pytest

from engine.errors import ModelError, ModelFileError, ModelNotFoundError
from engine.text.chat_template import MAX_TEMPLATE_BYTES, ChatTemplate, given_template, read_template
from tests.engine.text.vocabularies import load

TURNS = (Path(__file__).parents[2] / "e2e" / "data" / "gemma3_turns.jinja").read_text("utf-8")
# content of the file: words of the message
BROKEN = {
    b"": "is empty",
    b" \n": "is empty",
    b"\xff": "cannot be read: .* can't decode",
    b"{% if %}": "cannot be compiled: Expected an expression",
    b" " * (MAX_TEMPLATE_BYTES + 1): f"has more than {MAX_TEMPLATE_BYTES} bytes",
}


@pytest.mark.parametrize("content", BROKEN, ids=lambda content: str(content[:8]))
def test_a_broken_template_is_refused_by_its_files_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.jinja"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=f"The chat template {path} {BROKEN[content]}") as caught:
        given_template(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["missing.jinja", "", "a\0b", "missing/mine.jinja"])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match=f"chat template {tmp_path}"):
        given_template(tmp_path / name)
    with pytest.raises(ModelNotFoundError, match=r"There is no chat template .*; check the path"):
        given_template(tmp_path / "missing.jinja")


def test_the_largest_template_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_bytes(b"x" * MAX_TEMPLATE_BYTES)
    assert len(read_template(path)) == MAX_TEMPLATE_BYTES


def test_a_template_may_come_through_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("{{ messages }}",))
    writer.start()
    assert given_template(path) == "{{ messages }}"
    writer.join()


@pytest.mark.parametrize("turns", [1, 3, 5])
@pytest.mark.parametrize("opens_answer", [True, False])
def test_our_template_of_gemmas_turns_writes_what_the_published_one_does(turns: int, opens_answer: bool) -> None:
    roles = ("user", "assistant")
    chat = [{"role": roles[place % 2], "content": f" Turn {place}:\n\nzażółć 🙂\n"} for place in range(turns)]
    published, ours = (
        ChatTemplate(source, bos_token="<bos>", eos_token="<eos>")
        for source in (load("templates")["google-gemma-2-2b-it"], TURNS)
    )
    expected = published.render(chat, add_generation_prompt=opens_answer).text
    assert ours.render(chat, add_generation_prompt=opens_answer).text == expected


def test_with_it_the_systems_text_opens_the_first_turn_of_the_user() -> None:
    ours = ChatTemplate(TURNS, bos_token="<bos>", eos_token="<eos>")
    for role in ("system", "developer"):
        chat = [{"role": role, "content": "Be kind."}, {"role": "user", "content": " Hi "}]
        expected = "<bos><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\n"
        assert ours.render(chat).text == expected
