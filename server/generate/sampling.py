"""The fields of a body that say how tokens are chosen and where an answer ends -> the engine's Request."""

import secrets
from collections.abc import Iterable, Sequence
from itertools import islice

from engine.errors import RequestError
from engine.request import Request, SamplingParams, Thinking
from engine.sampling.constraint import Constraint
from server.api.chat.body import ChatBody
from server.api.completions.body import CompletionBody
from server.served import ServedModel, Tokenizer

AnyBody = ChatBody | CompletionBody
MAX_SEQUENCES = 1024  # of bad words as tokens


def requests_for(
    body: AnyBody,
    model: ServedModel,
    request_id: str,
    prompts: Sequence[tuple[int, ...]],
    *,
    prompt_logprobs: int | None = None,
    constraint: Constraint | None = None,
    thinking: Thinking | None = None,
    marks: frozenset[int] = frozenset(),
    prediction: tuple[int, ...] = (),
) -> tuple[Request, ...]:
    """One request a choice, prompt-major; raises RequestError for token ids that the model does not have."""
    sampling = _sampling(body, model)
    _check_ids(body.stop_token_ids, model, "stop_token_ids")
    limit, salt = body.token_limit, _salt(body)
    if limit is not None and body.fewest_tokens > limit:
        raise RequestError(
            f"min_tokens: {body.fewest_tokens} is more than the {limit} of max_tokens.", param="min_tokens"
        )
    return tuple(
        Request(
            id=request_id,
            prompt=prompt,
            choice=choice,
            max_tokens=limit,
            min_tokens=body.fewest_tokens,
            sampling=sampling,
            stop=tuple(body.stop),
            stop_tokens=frozenset(body.stop_token_ids),
            include_stop=body.include_stop_str_in_output,
            ignore_eos=body.ignore_eos,
            skip_special_tokens=body.skip_special_tokens,
            marks=marks,
            logprobs=body.alternatives,
            prompt_logprobs=prompt_logprobs,
            constraint=constraint,
            thinking=thinking,
            max_seconds=body.seconds,
            priority=body.priority,
            cache_salt=salt,
            caches_prompt=body.cache_prompt,
            prediction=prediction,
            explains_cache=body.cache_report and place == choice == 0,
        )
        for place, prompt in enumerate(prompts)
        for choice in range(body.n)
    )


def _salt(body: AnyBody) -> str:
    """The division of the prefix cache that the answers belong to: one of their own where they are to share nothing."""
    # The sign is one that a client's salt cannot hold.
    return body.cache_salt or "" if body.cache_prompt else f"@{secrets.token_hex(16)}"


def _sampling(body: AnyBody, model: ServedModel) -> SamplingParams:
    _check_ids(body.logit_bias, model, "logit_bias")
    _check_ids(body.allowed_token_ids or (), model, "allowed_token_ids")
    said, usual = body.model_fields_set, model.sampling
    return SamplingParams(
        temperature=body.temperature if "temperature" in said else usual.temperature,
        top_k=max(body.top_k, 0) if "top_k" in said else usual.top_k,
        top_p=body.top_p if "top_p" in said else usual.top_p,
        min_p=body.min_p if "min_p" in said else usual.min_p,
        seed=body.seed,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        repetition_penalty=usual.repetition_penalty if body.repetition is None else body.repetition,
        logit_bias=tuple(body.logit_bias.items()),
        allowed_tokens=None if body.allowed_token_ids is None else tuple(body.allowed_token_ids),
        banned_sequences=_banned(body.bad_words, model.tokenizer),
    )


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
