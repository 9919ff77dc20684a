"""From the fields of a body to the engine's Request: how tokens are chosen, and where the answer ends."""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from engine.api.prompt import Prompt
from engine.api.request import Request
from engine.api.sampling import Sampling
from engine.errors import RequestError
from engine.text.tokenizer import Tokenizer
from server.fields.chat import ChatBody
from server.fields.completions import CompletionBody
from server.served import ServedModel

AnyBody = ChatBody | CompletionBody
MAX_SEQUENCES = 1024  # of bad words as tokens


def requests_for(request: Request, prompts: Sequence[Prompt], body: AnyBody) -> tuple[Request, ...]:
    """The request once for each choice of each prompt, all choices of a prompt together; the first explains its cache.

    request: what the choices have in common, as `common_request` and the API's own plan fill it.
    """
    return tuple(
        replace(request, prompt=prompt, choice=choice, explains_cache=body.cache_report and place == choice == 0)
        for place, prompt in enumerate(prompts)
        for choice in range(body.n)
    )


def common_request(body: AnyBody, model: ServedModel, request_id: str) -> Request:
    """What a body says of all its choices; without a prompt yet. Raises RequestError for what the model cannot do."""
    sampling = sampling_of(body, model)
    _check_ids(body.stop_token_ids, model, "stop_token_ids")
    return Request(
        id=request_id,
        prompt=Prompt(()),
        max_tokens=body.token_limit,
        min_tokens=_least_tokens(body),
        sampling=sampling,
        stop=tuple(body.stop),
        stop_tokens=frozenset(body.stop_token_ids),
        include_stop=body.include_stop_str_in_output,
        ignore_eos=body.ignore_eos,
        skip_special_tokens=body.skip_special_tokens,
        logprobs=body.alternatives,
        max_seconds=body.seconds,
        priority=body.priority,
        cache_salt=_salt(body),
        caches_prompt=body.cache_prompt,
    )


def sampling_of(body: AnyBody, model: ServedModel) -> Sampling:
    """The model's own sampling, changed by what the body states. Raises RequestError for ids that are no tokens."""
    _check_ids(body.logit_bias, model, "logit_bias")
    _check_ids(body.allowed_token_ids or (), model, "allowed_token_ids")
    return replace(
        model.sampling,
        **body.stated_sampling,
        logit_bias=tuple(body.logit_bias.items()),
        allowed_tokens=None if body.allowed_token_ids is None else tuple(body.allowed_token_ids),
        banned_sequences=_banned(body.bad_words, model.tokenizer),
    )


def _least_tokens(body: AnyBody) -> int:
    limit = body.token_limit
    if limit is not None and body.fewest_tokens > limit:
        raise RequestError(
            f"min_tokens: {body.fewest_tokens} is more than the {limit} of max_tokens.", param="min_tokens"
        )
    return body.fewest_tokens


def _salt(body: AnyBody) -> str:
    """The answers' part of the prefix cache: a part of their own where they share nothing with other requests."""
    # A client's salt cannot hold the sign @.
    return body.cache_salt or "" if body.cache_prompt else f"@{secrets.token_hex(16)}"


def _banned(words: Sequence[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Each word as its tokens, at the beginning of a text and after a space."""
    spellings = (tuple(tokenizer.encode(text)) for word in words for text in (word, " " + word.lstrip(" ")))
    return tuple(islice(dict.fromkeys(ids for ids in spellings if ids), MAX_SEQUENCES))


def _check_ids(ids: Iterable[int], model: ServedModel, param: str) -> None:
    largest = max(ids, default=0)
    if largest >= model.vocab_size:
        raise RequestError(
            f"{param}: token id {largest} is not in the vocabulary; ids of this model are 0 to {model.vocab_size - 1}.",
            param=param,
        )
