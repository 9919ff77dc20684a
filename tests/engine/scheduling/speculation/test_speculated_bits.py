"""A request hears the same with drafts as without, whatever was guessed: tokens, text, logprobs, and the logit bits."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.api.config import EngineConfig
from engine.api.prompt import Prompt
from engine.api.request import Request, Thinking
from engine.api.sampling import Sampling
from engine.loading.runner import Runner
from tests.engine.runners import loaded
from tests.engine.scheduling.speculation.forced import Served, always, any_pattern, served
from tests.engine.text.constraints.grammars import Hashed, Words
from tests.tiny.families import write_tiny_family
from tests.tiny.models import write_tiny_llama
from tests.tiny.qwen35 import write_tiny_qwen35

LANES = 4
OFF = EngineConfig(lanes=LANES, prefill_rows=48, speculation="off")
ON = EngineConfig(lanes=LANES, prefill_rows=48)
MODELS = ("llama", "gemma3", "qwen35moe")
PATTERNS = {
    "right": always("rrrrrrr"),
    "wrong": always("wwwwwww"),
    "wrong at each place": lambda step: "r" * (step % 7) + "w" * (7 - step % 7),
    "any": any_pattern(1),
}


def write_model(architecture: str, path: Path) -> Path:
    if architecture == "llama":
        return write_tiny_llama(path, types="Q4_1", context=256)
    if architecture == "gemma3":
        return write_tiny_family(path, "gemma3", types="Q8_0", layers=4, context=256, window=40, pattern=2)
    return write_tiny_qwen35(path, types="Q8_0", context=256)


@pytest.fixture(scope="module", params=MODELS)
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    path = write_model(request.param, tmp_path_factory.mktemp("model") / "tiny.gguf")
    with loaded(path, threads=2, rows=64, lanes=LANES) as runner:
        yield runner


def some_requests() -> list[Request]:
    rng = random.Random(3)
    shapes = [
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"temperature": 0.0, "repetition_penalty": 1.3, "frequency_penalty": 0.7},
        {"temperature": 1.0, "presence_penalty": 0.5, "top_k": 5, "top_p": 0.9, "banned_sequences": ((5, 6),)},
    ]
    requests = []
    for number, shape in enumerate(shapes * 2):
        sampling = Sampling(seed=number, allowed_tokens=tuple(range(27)), **shape)  # type: ignore[arg-type]
        prompt = tuple(rng.randrange(288) for _ in range(rng.randint(20, 100)))
        requests.append(
            Request(id=f"r{number}", prompt=Prompt(prompt), max_tokens=rng.randint(30, 70), sampling=sampling)
        )
    requests[1] = replace(requests[1], stop=("ab", "q"), logprobs=3)
    requests[4] = replace(requests[4], thinking=Thinking(inside=True, start_id=None, end_ids=(3, 4), budget=9))
    requests[5] = replace(requests[5], constraint=Hashed(5), logprobs=0)
    requests[6] = replace(requests[6], constraint=Words("speculation", "spectacle"))
    requests += [replace(requests[7], choice=choice, ignore_eos=True) for choice in (1, 2)]
    return requests


@pytest.fixture(scope="module")
def plain(runner: Runner) -> Served:
    return served(runner, some_requests(), OFF)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_drafts_change_no_bit(runner: Runner, plain: Served, pattern: str) -> None:
    drafted = served(runner, some_requests(), ON, (plain.answers, PATTERNS[pattern]))
    assert drafted.items == plain.items
    assert drafted.logits == plain.logits
    assert drafted.drafted > 100
    assert (drafted.accepted == 0) == (pattern == "wrong")
    steps = len(drafted.bench.reports)
    assert steps < len(plain.bench.reports) or pattern == "wrong"


def test_drafts_change_no_bit_of_who_has_to_give_way(runner: Runner, plain: Served) -> None:
    groups = runner.groups
    try:
        runner.groups = tuple(replace(group, n_blocks=3) for group in groups)
        drafted = served(runner, some_requests(), ON, (plain.answers, PATTERNS["any"]))
    finally:
        runner.groups = groups
    assert drafted.items == plain.items
    assert sum(heard.job.sequence.standing.preemptions for heard in drafted.heard) > 0 and drafted.accepted > 100
    # What is computed again is drawn from once only.
    assert drafted.logits == plain.logits


def test_what_drafts_leave_in_the_prefix_cache_is_right(runner: Runner, plain: Served) -> None:
    """Two turns: the second begins with the prompt and the answer of the first."""
    first = [replace(request, max_tokens=90, ignore_eos=True, stop=(), constraint=None) for request in some_requests()]
    answers = served(runner, first, OFF).answers
    second = [
        replace(
            request, id=f"s{number}", prompt=Prompt((*request.prompt, *answers[request.id, request.choice], 30, 29))
        )
        for number, request in enumerate(first)
    ]
    second = [replace(request, max_tokens=20) for request in second]
    expected = served(runner, second, OFF)
    known = answers | expected.answers
    both = served_in_turns(runner, first, second, known)
    assert both.logits == expected.logits
    assert sum(heard.job.sequence.held.cached_tokens for heard in both.heard) > 5 * 64


def served_in_turns(
    runner: Runner, first: list[Request], second: list[Request], answers: dict[tuple[str, int], list[int]]
) -> Served:
    turn = served(runner, first, ON, (answers, any_pattern(2)))
    bench, keeper = turn.bench, turn.bench.loop._sampler
    heard = [bench.submit(request) for request in second]
    bench.finish()
    return Served([keeper.seen[one.job.sequence.chooser] for one in heard], [], heard, bench)  # type: ignore[attr-defined]
