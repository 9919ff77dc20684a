"""What speculation gains: tokens a second through the engine's loop, with it and without, turn about, by kind of text.

    python -m benchmarks.speculation [MODEL] --tokens 200 --rounds 5

prose goes on with a text at temperature 0.8, copy repeats its prompt and extract lists what it holds, both at
temperature 0. Each round serves each text both ways, turn about, and the figure is the median of the rounds' ratios.
Answers are compared: they must be the same.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from engine.config import EngineConfig
from engine.event_stream import EventStream
from engine.families.loaded import RunnerOptions, load_runner
from engine.loop import Delivery, EngineLoop, Job
from engine.memory.memory import Memory
from engine.outputs import RequestOutput
from engine.request import Request, SamplingParams
from engine.runner import Runner
from engine.sampler import Sampler
from engine.scheduling.scheduler import Scheduler
from engine.sequence import Sequence
from engine.status import StepReport
from engine.text.tokenizer import Tokenizer
from engine.token_chooser import TokenChooser
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
    """One answer and what it took."""

    tokens: list[int]
    seconds: float  # of the steps after the first token
    drafted: int
    accepted: int


class Engine:
    """A loop without its thread, which keeps what it has learned from one request to the next."""

    def __init__(self, runner: Runner, tokenizer: Tokenizer, speculation: str, draft_max: int) -> None:
        self._tokenizer = tokenizer
        config = EngineConfig(lanes=1, speculation=speculation, draft_max=draft_max)
        self.scheduler = Scheduler(config, Memory(runner, 1), runner)
        sampler = Sampler(min(runner.vocab_size, tokenizer.vocab_size))
        self._loop = EngineLoop(runner, self.scheduler, sampler, self._publish)

    def _publish(self, batch: list[Delivery], report: StepReport | None) -> None:
        """Nobody listens."""

    def serve(self, request: Request) -> Served:
        sequence = Sequence(request, request.max_tokens or 0, TokenChooser(request, self._tokenizer.end_ids))
        output = RequestOutput(request, self._tokenizer, sequence.max_new_tokens)
        self._loop.submit(Job(sequence, output, EventStream(lambda: None)))
        self._loop._take_commands()
        while sequence.new_tokens == 0:
            self._loop.step()
        began = time.perf_counter()
        while self.scheduler.has_work:
            self._loop.step()
        seconds = time.perf_counter() - began
        answer = sequence.tokens[sequence.prompt_tokens :]
        return Served(answer, seconds, sequence.drafted, sequence.accepted)


def measure(runner: Runner, tokenizer: Tokenizer, options: argparse.Namespace) -> Iterator[Line]:
    """One line for each kind of text."""
    engines = {mode: Engine(runner, tokenizer, mode, options.draft_max) for mode in ("off", str(options.speculation))}
    found: dict[str, list[tuple[Served, Served]]] = {}
    for number in range(options.rounds + 1):
        for text in TEXTS:
            request = _request(text, tokenizer, options.tokens, seed=number)
            order = list(engines.items())[:: 1 if number % 2 else -1]
            served = {mode: engine.serve(request) for mode, engine in order}
            pair = served["off"], served[options.speculation]
            if pair[0].tokens != pair[1].tokens:
                raise AssertionError(f"speculation changed an answer of the kind {text.kind}")
            if number:  # the first round warms up
                found.setdefault(text.kind, []).append(pair)
    pace = engines[options.speculation].scheduler.pace
    for kind, pairs in found.items():
        yield _line(kind, pairs)
    step = pace.decode_seconds(1)
    costs = {rows: pace.draft_seconds(1, rows) for rows in range(1, options.draft_max + 1)}
    yield {"what": "cost of a step with drafts, of one without"} | {
        f"{rows}": None if cost is None or not step else round(1 + cost / step, 2) for rows, cost in costs.items()
    }


def _request(text: Text, tokenizer: Tokenizer, tokens: int, seed: int) -> Request:
    return Request(
        id=text.kind,
        prompt=tuple(tokenizer.encode_prompt(text.prompt)),
        max_tokens=tokens,
        ignore_eos=True,
        sampling=SamplingParams(temperature=text.temperature, seed=seed),
    )


def _line(kind: str, pairs: list[tuple[Served, Served]]) -> Line:
    """Medians over answers; rates leave out the first token, which comes with the prefill."""
    drafted, accepted = (sum(getattr(on, name) for _, on in pairs) for name in ("drafted", "accepted"))
    return {
        "kind": kind,
        "answers": len(pairs),
        "off_tok_s": round(median((len(off.tokens) - 1) / off.seconds for off, _ in pairs), 1),
        "on_tok_s": round(median((len(on.tokens) - 1) / on.seconds for _, on in pairs), 1),
        "ratio": round(median(off.seconds / on.seconds for off, on in pairs), 3),
        "drafted": drafted,
        "acceptance": round(accepted / drafted, 3) if drafted else None,
    }


def main() -> None:
    """Print a line for each kind of text."""
    parser = argparse.ArgumentParser(description="Measure what speculation gains.")
    parser.add_argument("model", nargs="?", help="catalogue name, .gguf file or folder [smollm2-135m]")
    parser.add_argument("--tokens", type=int, default=200, help="of each answer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--speculation", default="auto", choices=["auto", "ngram", "mtp"])
    parser.add_argument("--draft-max", type=int, default=7)
    options = parser.parse_args()
    with open_weights(resolve_model(options.model).path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
        runner_options = RunnerOptions(lanes=1, context_length=2048, threads=options.threads)
        runner = load_runner(file, runner_options, lambda stage, done: None).runner
        try:
            for line in measure(runner, tokenizer, options):
                print(json.dumps(line), flush=True)
        finally:
            runner.close()


if __name__ == "__main__":
    main()
