"""The prefix cache survives a restart, and no file, however broken, gives a wrong hit or stops a start."""

import logging
import os
import random
import stat
from pathlib import Path
from typing import Any

import pytest

from engine.api.prompt import Prompt, Span
from engine.memory import persist, prefix_cache
from engine.run import nodes
from engine.run.nodes import NO_SLOT
from engine.run.runner_protocol import NO_BLOCK
from tests.engine.memory.bench import MemoryBench, prefix_of

KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"windows": (0, 6)},
    {"windows": (0,), "state_slots": 23},
    {"windows": (0, 6, 0), "state_slots": 23},
)
PROMPT = tuple(range(1, 15))


def bench_with(folder: Path, identity: str = "model", **others: Any) -> MemoryBench:
    return MemoryBench(cache_folder=folder, identity=identity, **others)


def reloaded(folder: Path, identity: str = "model", **others: Any) -> MemoryBench:
    """A new process: other blocks, other memory."""
    bench = bench_with(folder, identity, **others)
    bench.memory.load()
    bench.check()
    return bench


def saved(folder: Path, **others: Any) -> list[tuple[int, ...]]:
    """Answer some prompts with common beginnings, and save; returns their tokens."""
    bench = bench_with(folder, **others)
    texts = [bench.answer((*PROMPT[:length], length), tokens=10) for length in (3, 9, 14)]
    texts.append(bench.answer(PROMPT, tokens=3, caller=b"other", cache_salt="salt"))
    bench.memory.save()
    bench.check()
    return texts


def the_file(folder: Path) -> Path:
    (path,) = (folder / persist.FOLDER).iterdir()
    return path


def test_digests_are_what_they_were_when_a_file_was_written() -> None:
    root = nodes.root_digest(b"caller", "salt")
    assert root.hex() == "ff48a3bd613c1f8e0ee6d575c3923dfc5d7c9ea3452188b26baa51176809784b"
    block = nodes.block_digest(root, PROMPT)
    assert block.hex() == "45f19923ad18f8b8a405dd529cb6f64e9fa06f68bc0333b60959fb09154cd58c"


def test_a_span_is_found_after_a_restart_with_the_same_content_only(tmp_path: Path) -> None:
    one, other = (Prompt(PROMPT, (Span(5, 6, digest),)) for digest in (b"one", b"other"))
    bench = bench_with(tmp_path)
    bench.answer(one)
    bench.memory.save()
    again = bench_with(tmp_path)
    again.memory.load()
    assert (again.cached(one), again.cached(other), again.cached(PROMPT)) == (12, 4, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_cached_is_found_after_a_restart(tmp_path: Path, kind: dict[str, Any]) -> None:
    folder = tmp_path / "cache"
    texts = saved(folder, **kind)
    bench = reloaded(folder, **kind)
    for text in texts[:3]:
        assert bench.cached((*text, 9)) == (len(text) - 1) // 4 * 4
        bench.answer((*text, 9), tokens=4)  # the scripted runner compares all logits
    assert bench.cached(texts[3]) == 12, "of another caller's text only what this one had asked for itself"
    assert bench.cached(texts[3], caller=b"other", cache_salt="salt") == 16
    bench.check()


def test_the_file_is_private_and_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cache"
    saved(folder)
    saved(folder)
    assert stat.S_IMODE((folder / persist.FOLDER).stat().st_mode) == 0o700
    assert stat.S_IMODE(the_file(folder).stat().st_mode) == 0o600


def test_the_users_own_folder_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / persist.FOLDER).mkdir(mode=0o755)
    saved(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / persist.FOLDER).stat().st_mode) == 0o700


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / persist.FOLDER).symlink_to(tmp_path / "elsewhere")
    saved(tmp_path)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_caller_is_not_told(tmp_path: Path) -> None:
    bench = bench_with(tmp_path / "cache")
    bench.answer(PROMPT, caller=b"a-secret-key", cache_salt="a-secret-salt")
    bench.memory.save()
    assert b"a-secret" not in the_file(tmp_path / "cache").read_bytes()


def test_without_a_folder_nothing_is_written_or_read() -> None:
    bench = MemoryBench()
    bench.answer(PROMPT)
    bench.memory.save()
    bench.memory.load()
    bench.check()


def test_what_was_written_for_another_model_is_not_believed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = saved(tmp_path)
    assert reloaded(tmp_path, identity="another").cached(texts[2]) == 0
    path = the_file(tmp_path)
    path.rename(persist._path(tmp_path / persist.FOLDER, "another"))
    assert reloaded(tmp_path, identity="another").cached(texts[2]) == 0
    assert caplog.text.count("another model") == 1


@pytest.mark.parametrize("kind", [{"windows": (0, 0)}, {"windows": (4,)}, {"state_slots": 9}])
def test_other_sizes_are_not_believed(tmp_path: Path, kind: dict[str, Any]) -> None:
    texts = saved(tmp_path)
    assert reloaded(tmp_path, **kind).cached(texts[2]) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_file_gives_no_wrong_hit(tmp_path: Path, kind: dict[str, Any]) -> None:
    texts = saved(tmp_path, **kind)
    path, rng = the_file(tmp_path), random.Random(1)
    sound = path.read_bytes()
    for trial in range(60):
        broken = bytearray(sound)
        at = rng.randrange(len(broken))
        match trial % 4:
            case 0:
                broken[at] ^= 1 << rng.randrange(8)
            case 1:
                del broken[at:]
            case 2:
                broken[at:at] = rng.randbytes(rng.randrange(1, 50))
            case 3:
                del broken[at : at + rng.randrange(1, 300)]
        path.write_bytes(broken)
        bench = reloaded(tmp_path, **kind)  # which compares what each block holds with its tokens
        for text in texts:
            bench.answer((*text, 9), tokens=2)
        bench.check()


def test_a_broken_record_costs_only_its_chain(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    texts = saved(tmp_path)
    content = bytearray(the_file(tmp_path).read_bytes())
    content[-1] ^= 1
    the_file(tmp_path).write_bytes(content)
    bench = reloaded(tmp_path)
    assert sum(bench.cached((*text, 9)) for text in texts[:3]) >= 24
    assert "1 broken ones were left out" in caplog.text


def test_records_in_another_order_or_twice_give_no_wrong_hit(tmp_path: Path) -> None:
    texts = saved(tmp_path)
    with the_file(tmp_path).open("rb") as file:
        magic = file.read(len(persist.MAGIC))
        header, *records = [content for content in persist._frames(file, 10_000) if content is not None]
    for seed in range(20):
        rng = random.Random(seed)
        shuffled = rng.choices(records, k=2 * len(records))
        with the_file(tmp_path).open("wb") as file:
            file.write(magic)
            for content in (header, *shuffled):
                persist._write_frame(file, content)
        bench = reloaded(tmp_path)
        for node in bench.nodes():
            assert any(text[: 4 * node.depth] == prefix_of(node) for text in texts)


def test_a_record_without_its_block_is_left_out(tmp_path: Path) -> None:
    bench = bench_with(tmp_path, windows=(0, 99))
    bench.answer(PROMPT, tokens=1)
    (node,) = [node for node in bench.nodes() if node.depth == 1]
    node.children.clear()
    bench.memory._cache._drop_block(node, 0)
    bench.memory.save()
    assert reloaded(tmp_path, windows=(0, 99)).nodes() == []


def test_equal_digests_give_no_wrong_hit_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_cache, "block_digest", lambda parent, tokens: bytes(32))
    texts = saved(tmp_path)
    bench = reloaded(tmp_path)
    assert bench.memory.cached_blocks > 0
    for text in texts:
        bench.answer(text, tokens=2)


def contents(bench: MemoryBench) -> set[tuple[object, ...]]:
    """What the cache holds, wherever it lies."""
    return {
        (prefix_of(node), node.state != NO_SLOT, *(block != NO_BLOCK for block in node.blocks))
        for node in bench.nodes()
    }


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", KINDS)
def test_what_goes_first_is_the_same_after_a_restart(tmp_path: Path, kind: dict[str, Any], seed: int) -> None:
    rng = random.Random(seed)
    texts = [tuple(rng.randrange(1, 9) for _ in range(rng.randint(4, 24))) for _ in range(8)]

    def next_prompt() -> tuple[int, ...]:
        known = rng.choice(texts)
        return known[: rng.randint(1, len(known))] + tuple(rng.randrange(1, 9) for _ in range(rng.randint(1, 9)))

    others = {**kind, "n_blocks": 20} | ({"state_slots": 8} if "state_slots" in kind else {})
    before = bench_with(tmp_path, **others)
    for _ in range(40):
        before.answer(next_prompt(), tokens=rng.randint(1, 6))
    assert before.memory.evicted_blocks > 0
    before.memory.save()
    after = reloaded(tmp_path, **others)
    assert contents(after) == contents(before)
    for _ in range(40):
        prompt, tokens = next_prompt(), rng.randint(1, 6)
        assert after.answer(prompt, tokens=tokens) == before.answer(prompt, tokens=tokens)
        assert contents(after) == contents(before)
    after.check()


def test_what_was_in_use_when_it_was_saved_counts_as_just_used(tmp_path: Path) -> None:
    bench = bench_with(tmp_path, n_blocks=8)
    bench.start(PROMPT[:13])
    bench.generate(bench.running[0], 1)
    for first in range(20, 30):
        bench.answer((first, *PROMPT[:7]), tokens=1)
    bench.memory.save()
    bench = reloaded(tmp_path, n_blocks=8)
    bench.answer((31, *PROMPT[:7]), tokens=1)
    assert bench.cached(PROMPT[:13]) == 12


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_ages_that_are_no_numbers_are_not_believed(tmp_path: Path, number: float) -> None:
    bench = bench_with(tmp_path)
    bench.answer(PROMPT)
    for node in bench.nodes():
        node.used_at = number
    bench.memory.save()
    assert reloaded(tmp_path).nodes() == []


def test_a_smaller_memory_takes_what_fits(tmp_path: Path) -> None:
    texts = saved(tmp_path, windows=(0, 6), state_slots=9)
    bench = reloaded(tmp_path, windows=(0, 6), state_slots=4, n_blocks=3)
    assert bench.memory._pools[0].cached_blocks == 3
    for text in texts:
        if bench.memory.fits(len(text) + 1):
            bench.answer(text, tokens=1)
    bench.check()


def test_a_file_has_a_limit_and_keeps_what_is_worth_most(tmp_path: Path) -> None:
    bench = bench_with(tmp_path)
    old = bench.answer((1,) * 20, tokens=1)
    for first in range(20):
        bench.answer((first, *PROMPT[:7]), tokens=1)
    limit = 3000
    persist.save(bench.memory._cache, bench.runner, tmp_path, "model", limit)
    assert 2000 < the_file(tmp_path).stat().st_size <= limit
    assert reloaded(tmp_path).cached(old) == 20


def test_only_the_newest_files_stay(tmp_path: Path) -> None:
    own = tmp_path / persist.FOLDER
    own.mkdir()
    (own / "mine.txt").write_text("stays")
    for number in range(persist.KEPT_FILES + 2):
        bench = bench_with(tmp_path, identity=str(number))
        bench.answer(PROMPT)
        bench.memory.save()
        os.utime(persist._path(tmp_path / persist.FOLDER, str(number)), (number, number))
    names = {path.name for path in own.iterdir()}
    assert "mine.txt" in names and len(names) == 1 + persist.KEPT_FILES
    assert persist._path(tmp_path / persist.FOLDER, str(persist.KEPT_FILES + 1)).name in names


def test_a_folder_that_cannot_be_used_is_logged_and_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "file"
    path.write_text("in the way")
    bench = bench_with(path)
    bench.memory.load()
    bench.answer(PROMPT)
    bench.memory.save()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = saved(tmp_path)
    bench = bench_with(tmp_path)
    bench.answer((30,) * 14)

    def full(group: int, block: int) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench.runner, "read_block", full)
    bench.memory.save()
    assert reloaded(tmp_path).cached(texts[2]) > 0
    assert the_file(tmp_path).suffix == ".cache"


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    texts = saved(tmp_path / "cache")
    path = the_file(tmp_path / "cache")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert reloaded(tmp_path / "cache").cached(texts[2]) == 0
