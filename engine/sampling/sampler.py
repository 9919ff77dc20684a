"""Chooses the next token of a sequence from its logits, and tells how likely tokens were."""

import math

import numpy as np
from numpy.typing import NDArray

from engine.api.prompt import Prompt
from engine.api.request import Request, TokenLogprob
from engine.api.sampling import Sampling
from engine.errors import EngineFaultError, OctavoError, RequestError
from engine.sampling.token_chooser import TokenChooser
from kernels.sampling.logits import ban_unset, log_softmax
from kernels.sampling.sampling import argmax, draw, sampling_scratch

Float32 = NDArray[np.float32]


class Sampler:
    """Owns the scratch memory of sampling, for one thread. Compiles its kernels when made, not in a user's request.

    Logits are float32 [vocab_size], or longer: what lies beyond is no token.
    """

    def __init__(self, vocab_size: int) -> None:
        self._scratch = sampling_scratch(vocab_size)
        self._limited = np.zeros(vocab_size, np.float32)  # a copy of logits that a request's rules may change
        self._warm_up()

    def choose(self, logits: Float32, chooser: TokenChooser, likeliest: int = -1) -> int:
        """Return the next token from logits, which stay as they are; the chooser has taken it.

        `likeliest`: what argmax gives for all of the logits; -1: to be found. If none can be drawn: EngineFaultError by
        the model's fault, RequestError by the request's.
        """
        if chooser.is_free and chooser.params.temperature == 0 and 0 <= likeliest < self._limited.size:
            return likeliest
        logits = logits[: self._limited.size]
        if chooser.is_free:
            return self._drawn(logits, logits, chooser)
        token = chooser.forced()
        if token is None:
            token = self._drawn(self._limit(logits, chooser), logits, chooser)
        chooser.accept(token)
        return token

    def _drawn(self, limited: Float32, logits: Float32, chooser: TokenChooser) -> int:
        token = self._draw(limited, chooser)
        if token < 0:
            raise self._failure(logits)
        return token

    def logprob(self, logits: Float32, token: int, top: int) -> TokenLogprob:
        """Return the logarithms of a token's probability and of the `top` likeliest tokens'."""
        logits = logits[: self._limited.size]
        top = min(top, logits.size)
        peak, log_sum = log_softmax(logits, top, self._scratch)
        if math.isnan(log_sum):
            raise EngineFaultError(_NO_NUMBERS)
        largest, sum_ = float(peak), float(log_sum)

        def logarithm(logit: float) -> float:
            return -math.inf if math.isnan(logit) else logit - largest - sum_

        pairs = zip(self._scratch.ids[:top].tolist(), self._scratch.scores[:top].tolist(), strict=True)
        likeliest = sorted(((token, logarithm(logit)) for token, logit in pairs), key=lambda pair: (-pair[1], pair[0]))
        return TokenLogprob(token, logarithm(float(logits[token])), tuple(likeliest))

    def _limit(self, logits: Float32, chooser: TokenChooser) -> Float32:
        if not chooser.limits_logits:
            return logits
        np.copyto(self._limited, logits)
        chooser.apply_rules(self._limited)
        mask = chooser.mask()
        if mask is not None:
            ban_unset(self._limited, mask)
        return self._limited

    def _draw(self, logits: Float32, chooser: TokenChooser) -> int:
        params = chooser.params
        if params.temperature == 0:
            return int(argmax(logits))
        token = draw(
            logits,
            float(params.temperature),  # another type here would compile the kernel again
            params.top_k,
            float(params.min_p),
            float(params.top_p),
            chooser.next_uniform(),
            self._scratch,
        )
        return int(token)

    def _failure(self, logits: Float32) -> OctavoError:
        is_models_fault = argmax(logits) < 0
        return EngineFaultError(_NO_NUMBERS) if is_models_fault else RequestError(_NOTHING_LEFT)

    def _warm_up(self) -> None:
        logits = self._limited
        for temperature in (0.0, 1.0):
            sampling = Sampling(temperature=temperature, seed=0)
            self.choose(logits, TokenChooser(Request(id="", prompt=Prompt((0,)), sampling=sampling)))
        self.logprob(logits, 0, 1)
        ban_unset(logits, np.zeros(1, np.int32))


_NO_NUMBERS = "The model gave no usable logits for this request; report it with the model's name."
_NOTHING_LEFT = "The request's bans and grammar leave no token that could come next; allow more tokens."
