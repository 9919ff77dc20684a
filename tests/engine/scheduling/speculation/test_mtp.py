"""Drafts of the model's own block: those of the reference, and answers that stay what they are."""

from collections.abc import Iterator

import numpy as np
import pytest

from engine.api.config import EngineConfig
from engine.api.sampling import Sampling
from engine.errors import OctavoError
from engine.loading.runner import Runner
from engine.run.pace import Pace
from engine.run.runner_protocol import SequenceRows
from engine.run.sequence import TokenSequence
from engine.run.step import Computed, PlannedRows
from engine.sampling.token_chooser import TokenChooser
from engine.scheduling.speculation.drafters import ModelDrafter
from engine.scheduling.speculation.speculation import Speculation
from tests.engine.run.logit_keeper import LogitKeeper
from tests.engine.runners import GOLDEN, loaded
from tests.engine.scheduling.speculation.forced import served, try_all_drafts
from tests.engine.scripted import a_request
from tests.tiny.qwen35 import write_tiny_qwen35

Golden = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def golden() -> Golden:
    with np.load(GOLDEN / "qwen3_5_moe" / "logits.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}


def a_sequence(tokens: list[int], prompt_tokens: int, runner: Runner) -> TokenSequence:
    request = a_request(tuple(tokens[:prompt_tokens]))
    sequence = TokenSequence(request, 100, TokenChooser(request))
    sequence.held.tables = (list(range(-(-len(tokens) // runner.block_tokens) + 1)),)
    return sequence


def advance(runner: Runner, sequence: TokenSequence, tokens: list[int], rows: int) -> Computed:
    """Feed rows, and give the sequence the token after them."""
    at = sequence.computed
    planned = PlannedRows(
        sequence, SequenceRows(tokens[at : at + rows], at, sequence.held.tables, 1, final_rows=range(rows))
    )
    logits = runner.run([planned.rows]).copy()
    sequence.held.computed += rows
    sequence.tokens = tokens[: max(sequence.prompt_tokens, sequence.computed + 1)]
    return Computed(planned, logits, runner.likeliest, runner.final.copy())


@pytest.mark.parametrize("chunks", [(20, 1, 1, 1), (7, 13, 2, 1)])
def test_the_first_draft_is_the_reference_s(golden: Golden, chunks: tuple[int, ...]) -> None:
    ids = [int(token) for token in golden["ids"]]
    with loaded(GOLDEN / "qwen3_5_moe" / "model.gguf", activations="f32", kv_type="f32") as runner:
        assert runner.draft is not None
        drafter, sequence = ModelDrafter(runner.draft, runner.block_tokens), a_sequence(ids, 20, runner)
        for rows in chunks:
            step = advance(runner, sequence, ids, rows)
            drafts = drafter.follow([step], {sequence: 3} if sequence.pending == 1 else {})
            if sequence.pending == 1:
                assert len(drafts[sequence]) == 3
                assert drafts[sequence][0] == int(golden["mtp_logits"][sequence.computed - 1].argmax())


def test_drafts_do_not_follow_from_who_else_drafts(golden: Golden) -> None:
    ids = [int(token) for token in golden["ids"]]
    with loaded(GOLDEN / "qwen3_5_moe" / "model.gguf") as runner:
        assert runner.draft is not None
        drafter = ModelDrafter(runner.draft, runner.block_tokens)
        sequences = [a_sequence(ids[start:], 20, runner) for start in (0, 3)]
        for number, sequence in enumerate(sequences):
            sequence.held.tables = ([2 * number, 2 * number + 1],)
        steps = [advance(runner, sequence, ids[start:], 20) for start, sequence in zip((0, 3), sequences, strict=True)]
        together = drafter.follow(steps, dict(zip(sequences, (4, 2), strict=True)))
        alone = [
            drafter.follow([step], {sequence: count})
            for step, sequence, count in zip(steps, sequences, (4, 2), strict=True)
        ]
    assert [together[sequence] for sequence in sequences] == [
        one[sequence] for one, sequence in zip(alone, sequences, strict=True)
    ]
    assert [len(drafts) for drafts in together.values()] == [4, 2]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    path = write_tiny_qwen35(tmp_path_factory.mktemp("model") / "tiny.gguf", types="Q8_0", context=256)
    with loaded(path, rows=64, lanes=3) as runner:
        yield runner


def requests_of() -> list:  # type: ignore[type-arg]
    rng = np.random.default_rng(2)
    return [
        a_request(
            tuple(rng.integers(0, 288, 30 + 40 * number).tolist()),
            name=f"r{number}",
            max_tokens=60,
            ignore_eos=True,
            sampling=Sampling(temperature=number % 2, seed=number, allowed_tokens=tuple(range(1, 20))),
        )
        for number in range(4)
    ]


@pytest.mark.parametrize("mode", ["mtp", "auto"])
def test_its_drafts_change_no_bit(runner: Runner, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    try_all_drafts(monkeypatch)
    plain = served(runner, requests_of(), EngineConfig(lanes=3, prefill_rows=48, speculation="off"))
    drafted = served(runner, requests_of(), EngineConfig(lanes=3, prefill_rows=48, speculation=mode))
    assert drafted.items == plain.items and drafted.logits == plain.logits
    assert drafted.drafted > 200
    assert isinstance(drafted.bench.loop._sampler, LogitKeeper)


def test_a_draft_block_that_fails_is_left_alone(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("the block broke")

    plain = served(runner, requests_of(), EngineConfig(lanes=3, speculation="off"))
    monkeypatch.setattr(type(runner.draft), "run", fail)
    drafted = served(runner, requests_of(), EngineConfig(lanes=3, speculation="mtp"))
    assert drafted.items == plain.items and not drafted.bench.scheduler.speculation.follows


def test_a_model_without_a_block_cannot_be_told_to_use_it() -> None:
    with pytest.raises(OctavoError, match="no draft block"):
        Speculation(EngineConfig(speculation="mtp"), Pace(), None, 4)
