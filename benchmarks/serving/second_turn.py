"""The second turn of a long chat: what the prefix cache saves, and that it saves nothing where it must not.

    python -m benchmarks.serving.second_turn smollm2-135m --tokens 2000 --repeats 5

Each repeat is a chat of its own. `first` is a turn with a history that the server has never seen; `second` is the turn
after, with the answer and a new message; `control` is the second turn again with its first word changed, so that no
prefix is known. Times are from sending to the first token, medians over the repeats. The control's order changes.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import uvloop
from rich.table import Table

from benchmarks.serving.program import Figures, median, milliseconds, parser_of, quotient, shown, tell, warn_if_busy
from benchmarks.serving.server_process import ServerProcess, serving
from benchmarks.serving.text import Message, conversation, with_first_word, words
from clients.exchange import Address
from clients.streamed import Streamed, ask

TURNS = ("first", "second", "control")
_CONTROL_WORD = "Otherwise"  # conversations begin with a number


@dataclass(frozen=True, slots=True)
class Chat:
    """The answers of one repeat."""

    first: Streamed
    second: Streamed
    control: Streamed

    def of(self, turn: str) -> Streamed:
        return {"first": self.first, "second": self.second, "control": self.control}[turn]


async def chat(
    server: ServerProcess, draw: random.Random, arguments: argparse.Namespace, *, control_first: bool
) -> Chat:
    """Play one chat of two turns, and its control."""
    messages = conversation(draw, arguments.tokens)
    first = await _answer(server, messages, arguments.output_tokens)
    messages = [
        *messages,
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": words(draw, 20)},
    ]
    turns = {"second": messages, "control": with_first_word(messages, _CONTROL_WORD)}
    order = ("control", "second") if control_first else ("second", "control")
    answers = {turn: await _answer(server, turns[turn], arguments.output_tokens) for turn in order}
    return Chat(first, answers["second"], answers["control"])


async def _answer(server: ServerProcess, messages: Sequence[Message], output_tokens: int) -> Streamed:
    answer = Streamed()
    body = {"model": server.model, "messages": messages, "max_tokens": output_tokens, "temperature": 0}
    await ask(Address.of(server.url), "/v1/chat/completions", body, answer)
    await asyncio.sleep(0.2)  # as a user who reads, if a fast one
    return answer


async def _chats(server: ServerProcess, arguments: argparse.Namespace) -> list[Chat]:
    draw = random.Random(arguments.seed)
    await _answer(server, conversation(draw, 50), 4)
    return [await chat(server, draw, arguments, control_first=repeat % 2 == 1) for repeat in range(arguments.repeats)]


def figures(chats: Sequence[Chat]) -> Figures:
    """Medians of each turn, and the second turn's time over that of both cold ones."""
    turns: dict[str, dict[str, float | None]] = {}
    for turn in TURNS:
        answers = [one.of(turn) for one in chats]
        turns[turn] = {
            "prompt_tokens": median([answer.prompt_tokens for answer in answers]),
            "cached_tokens": median([answer.cached_tokens for answer in answers]),
            "most_cached_tokens": max(answer.cached_tokens for answer in answers),
            "first_token_ms": milliseconds(median([answer.first_token_seconds for answer in answers])),
        }
    times = {turn: turns[turn]["first_token_ms"] for turn in TURNS}
    return {
        "turns": turns,
        "second_to_first": quotient(times["second"], times["first"]),
        "second_to_control": quotient(times["second"], times["control"]),
    }


def _table(found: Figures) -> Table:
    table = Table(title="time to first token")
    for name in ("turn", "prompt tokens", "cached", "ms"):
        table.add_column(name, justify="left" if name == "turn" else "right")
    turns = found["turns"]
    assert isinstance(turns, dict)
    for turn, row in turns.items():
        table.add_row(
            turn, shown(row["prompt_tokens"], ",.0f"), shown(row["cached_tokens"], ",.0f"), shown(row["first_token_ms"])
        )
    ratios = f"{shown(found['second_to_first'], '.3f')} of the first, {shown(found['second_to_control'], '.3f')} of the"
    table.caption = f"the second turn takes {ratios} control"
    return table


def main(given: Sequence[str] | None = None) -> int:
    """Run the command line; 1 if the control was served from the cache."""
    parser = parser_of("second_turn", __doc__)
    parser.add_argument("--tokens", type=int, default=2000, help="of history, about [%(default)s]")
    parser.add_argument("--output-tokens", type=int, default=32, help="of each answer [%(default)s]")
    parser.add_argument("--repeats", type=int, default=5, help="[%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="of the chats [%(default)s]")
    arguments = parser.parse_args(given)
    warn_if_busy()
    with serving(arguments.model, arguments.serve) as server:
        chats = uvloop.run(_chats(server, arguments))
    tell(arguments, figures(chats), _table(figures(chats)))
    return int(any(one.control.cached_tokens for one in chats))


if __name__ == "__main__":
    sys.exit(main())
