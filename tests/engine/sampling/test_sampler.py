"""Random streams: owned by one request, set by its seed alone."""

import numpy as np
import pytest

from engine.api.prompt import Prompt
from engine.api.request import Request
from engine.api.sampling import Sampling
from engine.errors import EngineFaultError
from engine.sampling.sampler import Sampler
from engine.sampling.token_chooser import TokenChooser, random_stream

VOCAB_SIZE = 50
LOGITS = np.random.default_rng(5).normal(0, 1.5, VOCAB_SIZE).astype(np.float32)


def chooser_of(params: Sampling, choice: int = 0) -> TokenChooser:
    return TokenChooser(Request(id="r", prompt=Prompt((1,)), sampling=params, choice=choice))


def tokens(params: Sampling, count: int, choice: int = 0) -> list[int]:
    sampler, chooser = Sampler(VOCAB_SIZE), chooser_of(params, choice)
    return [sampler.choose(LOGITS, chooser) for _ in range(count)]


def test_a_seed_gives_the_same_tokens_and_another_gives_others() -> None:
    assert tokens(Sampling(seed=3), 50) == tokens(Sampling(seed=3), 50)
    assert tokens(Sampling(seed=3), 50) != tokens(Sampling(seed=4), 50)
    assert tokens(Sampling(seed=3), 50) != tokens(Sampling(seed=3), 50, choice=1)


def test_all_64_bits_of_a_seed_count_and_negative_ones_are_two_s_complement() -> None:
    seeds = [0, 1, -1, 2**32, -(2**63), 2**63 - 1]
    firsts = [random_stream(seed, 0).random_sample() for seed in seeds]
    assert len(set(firsts)) == len(seeds)
    assert random_stream(-1, 0).random_sample() == random_stream(2**64 - 1, 0).random_sample()


def test_the_stream_is_mt19937_and_its_numbers_never_change() -> None:
    """The first outputs of the reference implementation after init_by_array({0x123, 0x234, 0x345})."""
    stream = random_stream((0x234 << 32) | 0x123, 0x345)
    assert stream.randint(0, 2**32, 3, dtype=np.uint32).tolist() == [2813697596, 4147518854, 1554744811]


def test_no_seed_gives_other_tokens_each_time() -> None:
    assert tokens(Sampling(), 50) != tokens(Sampling(), 50)


def test_one_number_is_drawn_for_each_sampled_token_and_none_for_a_greedy_one() -> None:
    sampler = Sampler(VOCAB_SIZE)
    for params, drawn in ((Sampling(seed=8, top_k=1), 3), (Sampling(seed=8, temperature=0), 0)):
        chooser, stream = chooser_of(params), random_stream(8, 0)
        for _ in range(3):
            assert sampler.choose(LOGITS, chooser) == int(LOGITS.argmax())
        stream.random_sample(drawn)
        assert chooser.next_uniform() == stream.random_sample()


def test_sequences_that_share_a_sampler_do_not_touch_each_other() -> None:
    sampler = Sampler(VOCAB_SIZE)
    settings = [Sampling(seed=1), Sampling(seed=2, top_p=0.5), Sampling(seed=3, top_k=5)]
    choosers = [chooser_of(params) for params in settings]
    together = [[sampler.choose(LOGITS, chooser) for chooser in choosers] for _ in range(40)]
    for params, column in zip(settings, zip(*together, strict=True), strict=True):
        assert tokens(params, 40) == list(column)


def test_draws_of_a_seeded_stream_follow_the_distribution() -> None:
    n = 20_000
    counts = np.bincount(tokens(Sampling(seed=12345, temperature=1.3), n), minlength=VOCAB_SIZE)
    probabilities = np.exp(LOGITS.astype(np.float64) / 1.3)
    expected = n * probabilities / probabilities.sum()
    assert np.sum((counts - expected) ** 2 / expected) < 85.4  # the 99.9% point of chi-squared, 49 degrees of freedom


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_numbers_are_a_fault_and_not_a_token(temperature: float) -> None:
    logits = np.full(VOCAB_SIZE, np.nan, np.float32)
    with pytest.raises(EngineFaultError, match="no usable logits"):
        Sampler(VOCAB_SIZE).choose(logits, chooser_of(Sampling(temperature=temperature)))


def test_what_the_model_finds_likeliest_is_taken_only_if_it_is_a_token() -> None:
    logits = np.append(LOGITS, np.full(16, 100, np.float32))  # rows of the head that pad the vocabulary
    sampler, best = Sampler(LOGITS.size), int(LOGITS.argmax())
    for likeliest in (best, LOGITS.size, LOGITS.size + 3, -1):
        assert sampler.choose(logits, chooser_of(Sampling(temperature=0)), likeliest) == best


def test_what_the_model_finds_likeliest_is_nothing_to_a_request_with_rules_or_a_temperature() -> None:
    sampler, worst = Sampler(LOGITS.size), int(LOGITS.argmin())
    banning = Sampling(temperature=0, logit_bias=((worst, -100.0),))
    assert sampler.choose(LOGITS, chooser_of(banning), worst) == int(LOGITS.argmax())
    for seed in range(5):
        params = Sampling(temperature=0.7, seed=seed)
        assert sampler.choose(LOGITS, chooser_of(params), worst) == sampler.choose(LOGITS, chooser_of(params))
