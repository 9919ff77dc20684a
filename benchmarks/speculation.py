"""What speculation gains: tokens a second through the engine's loop, with it and without, turn about, by kind of text.

    python -m benchmarks.speculation [MODEL] --tokens 200 --rounds 5 --lanes 1

prose goes on with a text at temperature 0.8, copy repeats its prompt and extract lists what it holds, both at
temperature 0. Two engines on one runner serve each text at once, one with drafts and one without, and a step is given
to the one whose answers are shorter: so what else the machine does slows both alike. The figure is the median of the
answers' ratios, beside the quartiles. With several lanes, so many answers of a kind run together, and the time is that
until the first of them ends. Answers are compared: they must be the same.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median, quantiles

from engine.api.config import EngineConfig
from engine.api.prompt import Prompt
from engine.api.request import Request
from engine.api.sampling import Sampling
from engine.loading.load_runner import load_runner
from engine.loading.runner import Runner
from engine.memory.memory import Memory
from engine.run.event_stream import EventStream
from engine.run.outputs import RequestOutput
from engine.run.sequence import TokenSequence
from engine.run.status import StepReport
from engine.sampling.sampler import Sampler
from engine.sampling.token_chooser import TokenChooser
from engine.scheduling.loop import Delivery, EngineLoop, Job
from engine.scheduling.scheduler import Scheduler
from engine.text.tokenizer import Tokenizer
from engine.weights.catalogue import resolve_model
from engine.weights.open_weights import open_weights

Line = dict[str, object]

PROSE = (
    "The lighthouse keeper had not spoken to anyone since the first storms of autumn, and",
    "On the third day of the expedition we came upon a valley that no map had shown, where",
    "My grandmother used to say that every house remembers the people who lived in it, but",
)
CODE = """def total_price(items, tax_rate):
    subtotal = 0
    for item in items:
        subtotal += item.price * item.quantity
    discount = 0
    if subtotal > 100:
        discount = subtotal * 0.1
    taxed = (subtotal - discount) * (1 + tax_rate)
    return round(taxed, 2)


def average_price(items):
    if not items:
        return 0
    return sum(item.price for item in items) / len(items)
"""
RECORDS = "\n".join(
    f"Order {4000 + 37 * number}: {name} from {city} bought {count} boxes of {what}."
    for number, (name, city, count, what) in enumerate(
        [
            ("Maria Lopez", "Valencia", 12, "oranges"),
            ("Henrik Olsen", "Bergen", 4, "smoked salmon"),
            ("Aiko Tanaka", "Osaka", 9, "green tea"),
            ("Samuel Okoro", "Lagos", 20, "ginger"),
            ("Claire Dubois", "Lyon", 7, "walnuts"),
            ("Piotr Nowak", "Gdansk", 15, "rye bread"),
        ]
    )
)
COPY = f"Here is the file prices.py:\n\n{CODE}\nHere is the file prices.py again, with a copy of it:\n\n"
EXTRACT = f"{RECORDS}\n\nThe list of all orders once more:\nOrder 4000:"


@dataclass(frozen=True, slots=True)
class Text:
    """A kind of text and how it is asked for."""

    kind: str
    prompt: str
    temperature: float


TEXTS = (
    *(Text("prose", prompt, 0.8) for prompt in PROSE),
    Text("copy", COPY, 0.0),
    Text("extract", EXTRACT, 0.0),
)


@dataclass(frozen=True, slots=True)
class Served:
    """Answers that ran together and what they took, from the first token of all to the end of the first."""

    answers: list[list[int]]
    tokens: int
    seconds: float
    drafted: int
    accepted: int

    @property
    def speed(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


class Engine:
    """A loop without its thread, which keeps what it has learned from one request to the next."""

    def __init__(
        self, runner: Runner, memory: Memory, tokenizer: Tokenizer, speculation: str, options: argparse.Namespace
    ) -> None:
        self._tokenizer = tokenizer
        config = EngineConfig(lanes=options.lanes, speculation=speculation, draft_max=options.draft_max)
        self.scheduler = Scheduler(config, memory, runner)
        sampler = Sampler(min(runner.vocab_size, tokenizer.vocab_size))
        self._loop = EngineLoop(runner, self.scheduler, sampler, self._publish)

    def _publish(self, batch: list[Delivery], report: StepReport | None) -> None:
        """Nobody listens."""

    def begin(self, requests: list[Request]) -> None:
        """Take requests, and compute their first tokens."""
        self._sequences = [
            TokenSequence(request, request.max_tokens or 0, TokenChooser(request, self._tokenizer.end_ids))
            for request in requests
        ]
        for sequence in self._sequences:
            output = RequestOutput(sequence.request, self._tokenizer, sequence.max_new_tokens)
            self._loop.submit(Job(sequence, output, EventStream(lambda: None)))
        self._loop._take_commands()
        while not all(sequence.new_tokens for sequence in self._sequences):
            self._loop.step()
        self._first, self._seconds = self.tokens, 0.0

    @property
    def tokens(self) -> int:
        """Of all answers so far."""
        return sum(sequence.new_tokens for sequence in self._sequences)

    def step(self) -> None:
        began = time.perf_counter()
        self._loop.step()
        self._seconds += time.perf_counter() - began

    @property
    def is_done(self) -> bool:
        """Whether one has ended."""
        return any(sequence.new_tokens == sequence.max_new_tokens for sequence in self._sequences)

    def end(self) -> Served:
        """Let the other answers end too."""
        tokens, seconds = self.tokens - self._first, self._seconds
        while self.scheduler.has_work:
            self._loop.step()
        answers = [sequence.tokens[sequence.prompt_tokens :] for sequence in self._sequences]
        drafted, accepted = (sum(getattr(s, name) for s in self._sequences) for name in ("drafted", "accepted"))
        return Served(answers, tokens, seconds, drafted, accepted)


def _side_by_side(engines: tuple[Engine, Engine], requests: list[Request]) -> tuple[Served, Served]:
    """Serve the same requests in two engines, step by step."""
    for engine in engines:
        engine.begin(requests)
    while ahead := [engine for engine in engines if not engine.is_done]:
        min(ahead, key=lambda engine: engine.tokens).step()
    first, second = engines
    return first.end(), second.end()


def measure(runner: Runner, tokenizer: Tokenizer, options: argparse.Namespace) -> Iterator[Line]:
    """One line for each kind of text."""
    memory = Memory(runner, 2 * options.lanes)  # of both: each keeps to the blocks and lanes that it was given
    off, on = (Engine(runner, memory, tokenizer, mode, options) for mode in ("off", str(options.speculation)))
    found: dict[str, list[tuple[Served, Served]]] = {}
    for number in range(options.rounds + 1):
        for text in TEXTS:
            requests = [
                _request(text, tokenizer, options.tokens, seed=number * options.lanes + lane)
                for lane in range(options.lanes)
            ]
            pair = _side_by_side((off, on), requests)
            if pair[0].answers != pair[1].answers:
                raise AssertionError(f"speculation changed an answer of the kind {text.kind}")
            if number:  # the first round warms up
                found.setdefault(text.kind, []).append(pair)
    for kind, pairs in found.items():
        yield _line(kind, pairs)
    pace, lanes = on.scheduler.pace, options.lanes
    step = pace.decode_seconds(lanes)
    costs = {rows: pace.draft_seconds(lanes, rows) for rows in range(1, options.draft_max + 1)}
    yield {"what": "cost of a step with drafts, of one without"} | {
        f"{rows}": None if cost is None or not step else round(1 + cost / step, 2) for rows, cost in costs.items()
    }


def _request(text: Text, tokenizer: Tokenizer, tokens: int, seed: int) -> Request:
    return Request(
        id=text.kind,
        prompt=Prompt(tuple(tokenizer.encode_prompt(text.prompt))),
        max_tokens=tokens,
        ignore_eos=True,
        sampling=Sampling(temperature=text.temperature, seed=seed),
    )


def _line(kind: str, pairs: list[tuple[Served, Served]]) -> Line:
    """Medians over answers; rates leave out the first token, which comes with the prefill."""
    drafted, accepted = (sum(getattr(on, name) for _, on in pairs) for name in ("drafted", "accepted"))
    ratios = [on.speed / off.speed for off, on in pairs]
    return {
        "kind": kind,
        "answers": len(pairs),
        "off_tok_s": round(median(off.speed for off, _ in pairs), 1),
        "on_tok_s": round(median(on.speed for _, on in pairs), 1),
        "ratio": round(median(ratios), 3),
        "quartiles": [round(ratio, 3) for ratio in quantiles(ratios, n=4, method="inclusive")[::2]]
        if len(ratios) > 1
        else None,
        "drafted": drafted,
        "acceptance": round(accepted / drafted, 3) if drafted else None,
    }


def main() -> None:
    """Print a line for each kind of text."""
    parser = argparse.ArgumentParser(description="Measure what speculation gains.")
    parser.add_argument("model", nargs="?", help="catalogue name, .gguf file or folder [smollm2-135m]")
    parser.add_argument("--tokens", type=int, default=200, help="of each answer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lanes", type=int, default=1, help="answers of a kind that run together")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--speculation", default="auto", choices=["auto", "ngram", "mtp"])
    parser.add_argument("--draft-max", type=int, default=7)
    options = parser.parse_args()
    with open_weights(resolve_model(options.model).path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
        runner_options = EngineConfig(lanes=2 * options.lanes, context_length=2048, threads=options.threads)
        runner = load_runner(file, runner_options, lambda stage, done: None).runner
        try:
            for line in measure(runner, tokenizer, options):
                print(json.dumps(line), flush=True)
        finally:
            runner.close()


if __name__ == "__main__":
    main()
