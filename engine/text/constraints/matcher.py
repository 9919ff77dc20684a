"""One answer's place in its compiled grammar, as masks over the vocabulary."""

from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from engine.errors import EngineFaultError, RequestError

WORD = 32  # tokens in a word of a mask


@dataclass(frozen=True, slots=True)
class CompiledGrammar:
    """A grammar for one vocabulary, shared by requests; what llguidance holds for it is never changed."""

    initial: LLMatcher
    end_bits: NDArray[np.int32]  # the mask of the end tokens alone
    param: str  # the request's field that the grammar came from

    def start(self) -> "GrammarMatcher":
        return GrammarMatcher(self.initial.deep_copy(), self.end_bits, self.param)


class GrammarMatcher:
    """Follows one answer. A grammar that proves too complex on the way ends its own request only.

    It does so by llguidance's limits, which count steps of work: the same answer ends alike on every machine.
    """

    def __init__(self, place: LLMatcher, end_bits: NDArray[np.int32], param: str) -> None:
        self._place = place
        self._end_bits = end_bits
        self._param = param
        self._mask = np.zeros_like(end_bits)
        self._is_current = False

    def mask(self) -> NDArray[np.int32]:
        """The tokens that may come next; a view valid until the next call."""
        if not self._is_current:
            self._compute_mask()
            self._is_current = True
        return self._mask

    def accept(self, token: int) -> None:
        """Go on by a token that the mask allows."""
        if not self._place.consume_token(token):
            if self._is_current and self._mask[token // WORD] >> (token % WORD) & 1:
                raise self._too_complex()
            raise EngineFaultError(f"The grammar was led into token {token}, which it does not allow: {self._reason}.")
        self._is_current = False

    @property
    def is_complete(self) -> bool:
        """Whether nothing but an end token may follow."""
        return self._place.is_stopped() and not self._place.is_error()

    def _compute_mask(self) -> None:
        self._place.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        if self._place.is_error():
            raise self._too_complex()
        if not self._place.is_accepting():
            self._mask &= ~self._end_bits  # an end token that the grammar names would end the answer before it is whole
        if not self._mask.any():
            raise self._refusal("leads to a place from which no token goes on")

    @property
    def _reason(self) -> str:
        return self._place.get_error().partition("\n")[0].rstrip(".") or "no reason given"

    def _too_complex(self) -> RequestError:
        return self._refusal(f"became too complex for this answer: {self._reason}")

    def _refusal(self, what: str) -> RequestError:
        return RequestError(f"The grammar {what}; make it simpler.", param=self._param)
