"""The figures beside an answer's text: what was used, what it took, and how likely its tokens were."""

from collections.abc import Iterable, Sequence

from engine.api.request import CacheMiss, CacheReport, FinishEvent, Token, TokenLogprob
from engine.text.tokenizer import Tokenizer
from server.generate.answer import Finish, Json, Plan, Speed
from server.generate.message_spans import Spans, message_of

LOWEST_LOGPROB = -9999.0  # what stands for less than JSON can say


def usage(finishes: Sequence[Finish], n: int = 1) -> Json:
    """Each prompt is counted once, and the answers are added up; `finishes` are in the order of the choices."""
    events = [finish.event for finish in finishes]
    prompt_tokens = sum(event.prompt_tokens for event in events[::n])
    completion_tokens = sum(event.completion_tokens for event in events)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(event.cached_tokens for event in events[::n])},
        "completion_tokens_details": {
            "reasoning_tokens": sum(finish.reasoning_tokens for finish in finishes),
            "accepted_prediction_tokens": sum(event.accepted_prediction_tokens for event in events),
            "rejected_prediction_tokens": sum(event.rejected_prediction_tokens for event in events),
        },
    }


def timings(*events: FinishEvent, speed: Speed | None = None) -> Json:
    """Milliseconds and rates under llama-server's names. The first token comes with the prefill, not the decoding.

    Of several choices, which run side by side: the longest times, and the tokens of all.
    """
    decode_seconds = max(event.timings.decode_seconds for event in events)
    prefill_seconds = max(event.timings.prefill_seconds for event in events)
    computed = sum(event.prompt_tokens - event.cached_tokens for event in events)
    decoded = sum(max(event.completion_tokens - 1, 0) for event in events)
    figures: Json = {
        "queue_ms": _milliseconds(max(event.timings.queue_seconds for event in events)),
        "cache_n": sum(event.cached_tokens for event in events),
        "prompt_n": computed,
        "prompt_ms": _milliseconds(prefill_seconds),
        "prompt_per_second": _rate(computed, prefill_seconds),
        "predicted_n": sum(event.completion_tokens for event in events),
        "predicted_ms": _milliseconds(decode_seconds),
        "predicted_per_second": _rate(decoded, decode_seconds),
        "draft_n": sum(event.timings.drafted_tokens for event in events),
        "draft_n_accepted": sum(event.timings.accepted_tokens for event in events),
        "lanes": round(max(event.timings.mean_lanes for event in events), 2),  # that shared each pass over the weights
    }
    return figures if speed is None else figures | _against_the_machine(events, decode_seconds, speed)


def plan_timings(plan: Plan, finishes: Sequence[Finish], speed: Speed) -> Json:
    """Of all choices; what the prefix cache gave is told of the first prompt, where the request has asked for it."""
    figures = timings(*(finish.event for finish in finishes), speed=speed)
    report = finishes[0].event.cache
    return figures if report is None else figures | {"cache": _cache(report, plan.message_spans)}


def _cache(report: CacheReport, spans: Spans) -> Json:
    differs = report.miss is CacheMiss.DIFFERS
    return {
        "cached_tokens": report.cached_tokens,
        "matched_tokens": report.matched_tokens,
        "miss": report.miss,
        "message": message_of(report.matched_tokens, spans) if differs else None,
    }


def _against_the_machine(events: Sequence[FinishEvent], seconds: float, speed: Speed) -> Json:
    """What the longest of the choices read of the weights, one pass a token, and how much of the machine that is.

    A draft that was right is a token without a pass of its own.
    """
    passes = max(event.completion_tokens - 1 - event.timings.accepted_tokens for event in events)
    read = _rate(passes * speed.bytes_per_step, seconds)
    figures: Json = {"bytes_per_step": speed.bytes_per_step}
    return (
        figures if speed.bandwidth is None else figures | {"bandwidth_percent": round(100 * read / speed.bandwidth, 1)}
    )


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1e3, 3)


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 2) if count > 0 and seconds > 0 else 0.0


def chat_logprobs(tokens: Iterable[Token], tokenizer: Tokenizer) -> Json:
    """`logprobs` of a chat's choice: one entry a token."""
    return {"content": [_entry(token.logprob, tokenizer) for token in tokens if token.logprob], "refusal": None}


def _entry(chosen: TokenLogprob, tokenizer: Tokenizer) -> Json:
    top = [_token(token, logprob, tokenizer) for token, logprob in chosen.top]
    return {**_token(chosen.token, chosen.logprob, tokenizer), "top_logprobs": top}


def _token(token: int, logprob: float, tokenizer: Tokenizer) -> Json:
    raw = tokenizer.token_bytes(token)
    text = raw.decode(errors="replace") if raw else tokenizer.token_text(token)
    return {"token": text, "logprob": max(logprob, LOWEST_LOGPROB), "bytes": list(raw) if raw else None}
