"""Plays a load against a server, and keeps a record of each request."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from clients.client import ApiError
from clients.exchange import Address
from clients.load_plan import Plan
from clients.overlap import Decode
from clients.streamed import Streamed, ask


@dataclass(slots=True)
class Record:
    """One request, as the client saw it."""

    number: int
    answer: Streamed = field(default_factory=Streamed)
    error: str | None = None

    @property
    def is_complete(self) -> bool:
        return self.error is None and self.answer.ended is not None

    @property
    def decode(self) -> Decode | None:
        times = self.answer.times
        return Decode(times[0], times[-1], self.answer.output_tokens) if times else None

    def line(self, began: float) -> Mapping[str, object]:
        """What a log says of it; times are seconds since `began`."""

        def since(moment: float | None) -> float | None:
            return None if moment is None else round(moment - began, 6)

        answer = self.answer
        return {
            "request": self.number,
            "start": since(answer.sent),
            "first_token": since(answer.times[0] if answer.times else None),
            "last_token": since(answer.times[-1] if answer.times else None),
            "end": since(answer.ended),
            "prompt_tokens": answer.prompt_tokens,
            "cached_tokens": answer.cached_tokens,
            "output_tokens": answer.output_tokens,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Run:
    """A plan that was played; requests that were never sent have no record."""

    plan: Plan
    began: float  # of time.perf_counter
    seconds: float
    client_cpu_seconds: float
    records: list[Record]


async def run_load(url: str, plan: Plan) -> Run:
    """Play the plan against a server; never sends more than plan.requests, never runs past plan.seconds."""
    address = Address.of(url)
    records: list[Record] = []
    prompts = plan.prompts()  # shared: a caller takes the next one

    async def caller() -> None:
        for prompt in prompts:
            record = Record(len(records))
            records.append(record)
            await _measure(address, plan, prompt, record)

    began, cpu = time.perf_counter(), time.process_time()
    callers = [asyncio.create_task(caller()) for _ in range(min(plan.concurrency, plan.requests))]
    _, late = await asyncio.wait(callers, timeout=plan.seconds)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    for task in set(callers) - late:
        task.result()
    return Run(plan, began, seconds, cpu, records)


async def _measure(address: Address, plan: Plan, prompt: list[int], record: Record) -> None:
    body = {
        "model": plan.model,
        "prompt": prompt,
        "max_tokens": plan.output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "skip_special_tokens": False,  # a token that shows no text would hide a gap
    }
    try:
        await ask(address, "/v1/completions", body, record.answer, read_later=True)
    except ApiError as error:
        record.error = f"{error.status} {error.code}"
    except (OSError, TimeoutError) as error:
        record.error = type(error).__name__
