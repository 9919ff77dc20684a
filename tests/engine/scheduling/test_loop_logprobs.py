"""Logprobs of answers and prompts, through the loop."""

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.api.config import EngineConfig
from engine.api.request import FinishReason, TokenLogprob
from engine.api.sampling import Sampling
from tests.engine.scheduling.loop_bench import Bench, alone, essence, finish_of
from tests.engine.scripted import VOCAB_SIZE, ScriptedRunner, a_request, hashed_logits


def reference_logprobs(known: tuple[int, ...]) -> NDArray[np.float64]:
    logits = hashed_logits(known).astype(np.float64)
    result: NDArray[np.float64] = logits - np.log(np.sum(np.exp(logits)))
    return result


def check_logprob(entry: TokenLogprob | None, known: tuple[int, ...], token: int, top: int) -> None:
    assert entry is not None and entry.token == token
    expected = reference_logprobs(known)
    assert entry.logprob == pytest.approx(expected[token], abs=1e-6)
    order = sorted(range(VOCAB_SIZE), key=lambda i: (-expected[i], i))[:top]
    assert [token for token, _ in entry.top] == order
    assert [value for _, value in entry.top] == pytest.approx(expected[order], abs=1e-6)
    assert all(value == entry.logprob for token, value in entry.top if token == entry.token)


@pytest.mark.parametrize("top", [0, 1, 5, 100])
def test_logprobs_are_of_the_model_s_own_logits_whatever_the_sampling_is(top: int) -> None:
    bench = Bench()
    sampling = Sampling(temperature=1.7, seed=3, top_k=5, frequency_penalty=1.0, logit_bias=((4, 5.0),))
    heard = bench.submit(a_request(sampling=sampling, ignore_eos=True, logprobs=top))
    bench.finish()
    known, tokens = heard.job.sequence.request.prompt.tokens, heard.tokens
    assert len(tokens) == 8
    for token in tokens:
        check_logprob(token.logprob, known, token.id, top)
        known = (*known, token.id)


@pytest.mark.parametrize("prompt_tokens", [1, 2, 5, 16, 17, 40])
@pytest.mark.parametrize("max_tokens", [0, 3])
def test_a_prompt_is_scored_in_chunks_that_fit_the_logits(prompt_tokens: int, max_tokens: int) -> None:
    bench = Bench(ScriptedRunner(max_logit_rows=8), EngineConfig(lanes=3))
    rng = random.Random(prompt_tokens)
    prompt = tuple(rng.randrange(1, VOCAB_SIZE) for _ in range(prompt_tokens))
    mate = bench.submit(a_request((7, 8), ignore_eos=True))
    heard = bench.submit(a_request(prompt, max_tokens=max_tokens, ignore_eos=True, prompt_logprobs=2))
    bench.finish()
    finish = finish_of(heard)
    assert (finish.reason, finish.completion_tokens) == (FinishReason.LENGTH, max_tokens)
    assert len(finish.prompt_logprobs) == prompt_tokens and finish.prompt_logprobs[0] is None
    for place in range(1, prompt_tokens):
        check_logprob(finish.prompt_logprobs[place], prompt[:place], prompt[place], 2)
    unscored = alone(a_request(prompt, max_tokens=max(max_tokens, 1), ignore_eos=True))
    assert heard.items[:max_tokens] == unscored[:max_tokens]
    assert essence(mate.items) == essence(alone(mate.job.sequence.request))
