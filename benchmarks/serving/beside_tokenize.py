"""Short chats alone, and beside a crowd that has large texts tokenized: what the first token of a chat waits for.

    python -m benchmarks.serving.beside_tokenize smollm2-135m --callers 44 --megabytes 0.5

Each round asks a few chats, one after the other, of an idle server; then as many callers as said ask for the tokens of
a text of their own, all at once, and meanwhile the chats are asked again. Times are from sending to the first token.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import uvloop
from rich.table import Table

from benchmarks.serving.program import Figures, median, milliseconds, parser_of, shown, tell, warn_if_busy
from benchmarks.serving.server_process import ServerProcess, serving
from benchmarks.serving.text import words
from clients.exchange import Address, Exchange
from clients.streamed import Streamed, ask

SETTLING_SECONDS = 3.0  # a server that is ready measures its bandwidth, and builds the validators of all routes
_ARRIVING_SECONDS = 0.3  # in which the crowd's bodies are there
_PAUSE_SECONDS = 0.1  # between chats
_CHARACTERS_A_WORD = 4.5


@dataclass(slots=True)
class Round:
    """What one round saw."""

    alone: list[float] = field(default_factory=list)  # seconds to the first token
    beside: list[float] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)  # of the crowd
    crowd_seconds: float = 0.0  # until the last of it had its answer


async def played(server: ServerProcess, draw: random.Random, arguments: argparse.Namespace) -> Round:
    """One round."""
    found = Round()
    for _ in range(arguments.chats):
        found.alone.append(await _first_token(server, draw))
    count = int(arguments.megabytes * 1e6 / _CHARACTERS_A_WORD)
    texts = [{"prompt": words(draw, count)} for _ in range(arguments.callers)]
    begin = time.perf_counter()
    crowd = asyncio.gather(*(_tokenized(Address.of(server.url), text) for text in texts))
    await asyncio.sleep(_ARRIVING_SECONDS)
    for _ in range(arguments.chats):
        seconds = await _first_token(server, draw)
        if not crowd.done():
            found.beside.append(seconds)
    found.statuses = await crowd
    found.crowd_seconds = time.perf_counter() - begin
    return found


async def _first_token(server: ServerProcess, draw: random.Random) -> float:
    await asyncio.sleep(_PAUSE_SECONDS)
    answer = Streamed()
    message = {"role": "user", "content": f"{draw.getrandbits(30)} {words(draw, 12)}"}
    body = {"model": server.model, "messages": [message], "max_tokens": 4, "temperature": 0, "ignore_eos": True}
    await ask(Address.of(server.url), "/v1/chat/completions", body, answer)
    return answer.first_token_seconds or 0.0


async def _tokenized(address: Address, body: dict[str, str]) -> int:
    exchange = await Exchange.open(address, lambda _: None)
    try:
        exchange.send(address.post("/v1/tokenize", body))
        await exchange.wait()
    finally:
        exchange.close()
    return exchange.status


async def _rounds(server: ServerProcess, arguments: argparse.Namespace) -> list[Round]:
    await asyncio.sleep(SETTLING_SECONDS)
    draw = random.Random(arguments.seed)
    await _first_token(server, draw)
    return [await played(server, draw, arguments) for _ in range(arguments.rounds)]


def figures(rounds: Sequence[Round]) -> Figures:
    """Of all chats of all rounds; the difference is that of the medians."""
    alone = [seconds for one in rounds for seconds in one.alone]
    beside = [seconds for one in rounds for seconds in one.beside]
    middle_alone, middle_beside = median(alone), median(beside)
    later = None if middle_alone is None or middle_beside is None else middle_beside - middle_alone
    return {
        "alone": {"chats": len(alone), "first_token_ms": milliseconds(middle_alone), "worst_ms": _worst(alone)},
        "beside": {"chats": len(beside), "first_token_ms": milliseconds(middle_beside), "worst_ms": _worst(beside)},
        "later_ms": milliseconds(later),
        "crowd_statuses": dict(Counter(status for one in rounds for status in one.statuses)),
        "crowd_seconds": [round(one.crowd_seconds, 2) for one in rounds],
    }


def _worst(seconds: Sequence[float]) -> float | None:
    return milliseconds(max(seconds, default=None))


def _table(found: Figures) -> Table:
    table = Table(title="time to a chat's first token, ms")
    for name in ("", "chats", "median", "worst"):
        table.add_column(name, justify="right" if name else "left")
    for name in ("alone", "beside"):
        row = found[name]
        assert isinstance(row, dict)
        table.add_row(name, str(row["chats"]), shown(row["first_token_ms"]), shown(row["worst_ms"]))
    table.caption = (
        f"{shown(found['later_ms'])} ms later beside the crowd, whose answers were {found['crowd_statuses']}"
    )
    return table


def main(given: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if a caller of the crowd was neither served nor told to come back."""
    parser = parser_of("beside_tokenize", __doc__)
    parser.add_argument("--callers", type=int, default=44, help="of the crowd [%(default)s]")
    parser.add_argument("--megabytes", type=float, default=0.5, help="of text of each [%(default)s]")
    parser.add_argument("--chats", type=int, default=5, help="of a round, alone and beside [%(default)s]")
    parser.add_argument("--rounds", type=int, default=5, help="[%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="of the texts [%(default)s]")
    arguments = parser.parse_args(given)
    warn_if_busy()
    with serving(arguments.model, arguments.serve) as server:
        found = figures(uvloop.run(_rounds(server, arguments)))
    tell(arguments, found, _table(found))
    statuses = found["crowd_statuses"]
    assert isinstance(statuses, dict)
    return int(bool(set(statuses) - {200, 429}))


if __name__ == "__main__":
    sys.exit(main())
