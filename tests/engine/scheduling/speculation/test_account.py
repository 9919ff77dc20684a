"""What an answer may lose by guesses is bounded, whatever it says and whatever chances are hoped for."""

import random

import pytest

from engine.api.config import EngineConfig
from engine.run.pace import Pace
from engine.run.sequence import TokenSequence
from engine.sampling.token_chooser import TokenChooser
from engine.scheduling.speculation.draft_budget import FIRST_TOKENS, MOST_TOKENS, SHARE, Account
from engine.scheduling.speculation.drafters import Guess
from engine.scheduling.speculation.speculation import Speculation
from tests.engine.scripted import a_request

STEP = 0.02
PROMPT = tuple(range(50))
LENGTH = 400


def measured(row: float, lanes: int) -> Pace:
    """Steps that one draft row makes longer by so much of a step."""
    pace = Pace()
    pace.note(lanes, (), STEP)
    for rows in range(1, 16):
        pace.note(lanes, (), STEP * (1 + row * rows), rows)
    return pace


def lost(speculation: Speculation, row: float, answers: list[list[int]]) -> list[float]:
    """Serve answers together; the tokens that each has lost by the rows of its drafts."""
    requests = [a_request(PROMPT, max_tokens=LENGTH) for _ in answers]
    sequences = {
        TokenSequence(request, LENGTH, TokenChooser(request)): answer
        for request, answer in zip(requests, answers, strict=True)
    }
    spent = dict.fromkeys(sequences, 0.0)
    for sequence, answer in sequences.items():
        sequence.tokens.append(answer[0])
    while going := {s: len(answer) - s.new_tokens for s, answer in sequences.items() if s.new_tokens < len(answer)}:
        if len(going) < len(answers):
            break  # with fewer together, rows have another price
        due = speculation.due(list(going))
        drafts = speculation.drafts({sequence: going[sequence] - 1 for sequence in due}, 64, len(going))
        for sequence in going:
            guess = drafts.get(sequence, ())
            spent[sequence] += len(guess) * row * len(answers)
            for right in (*guess, None):
                sequence.tokens.append(sequences[sequence][sequence.new_tokens])
                if sequence.tokens[-1] != right:
                    break
                spent[sequence] -= 1
    return list(spent.values())


def drafted(speculation: Speculation, sequence: TokenSequence) -> tuple[int, ...]:
    return speculation.drafts(dict.fromkeys(speculation.due([sequence]), 9), 64, 1).get(sequence, ())


def misleading(seed: int) -> list[int]:
    """Pairs of the prompt, each left as soon as it lets one guess that it goes on."""
    rng, answer = random.Random(seed), list[int]()
    while len(answer) < LENGTH:
        start = rng.randrange(40)
        answer += [*PROMPT[start : start + 2], 100 + len(answer)]
    return answer[:LENGTH]


def hopeful(speculation: Speculation) -> Speculation:
    """Whatever was guessed so far was right."""
    speculation._shared._right = [1000.0] * len(speculation._shared._right)
    speculation._shared._judged = [1000.0] * len(speculation._shared._judged)
    return speculation


@pytest.mark.parametrize(("lanes", "row"), [(1, 0.05), (1, 0.3), (1, 0.7), (4, 0.03), (4, 0.1)])
def test_a_text_that_misleads_loses_no_more_than_is_said(lanes: int, row: float) -> None:
    speculation = hopeful(Speculation(EngineConfig(), measured(row, lanes), None, 64))
    losses = lost(speculation, row, [misleading(seed) for seed in range(lanes)])
    assert max(losses) <= FIRST_TOKENS + SHARE * LENGTH
    assert max(losses) > 0  # it was tempted


def test_a_text_that_ceases_to_repeat_loses_no_more_than_is_said() -> None:
    row, repeating = 0.3, list(PROMPT) * 4
    speculation = hopeful(Speculation(EngineConfig(), measured(row, 1), None, 64))
    (gained,) = lost(speculation, row, [repeating])
    assert gained < -50
    speculation = hopeful(Speculation(EngineConfig(), measured(row, 1), None, 64))
    (after,) = lost(speculation, row, [repeating + misleading(1)])
    assert after - gained <= MOST_TOKENS + SHARE * LENGTH


def test_a_text_that_lets_nothing_be_tried_is_looked_at_ever_less_often() -> None:
    speculation, asked = Speculation(EngineConfig(), measured(0.3, 1), None, 64), list[int]()
    sequence = TokenSequence(request := a_request(PROMPT, max_tokens=LENGTH), LENGTH, TokenChooser(request))
    answer = speculation._answer(sequence)
    guess = answer.drafters[0].guess

    def noted(tokens: list[int], most: int) -> Guess:
        asked.append(sequence.new_tokens)
        return guess(tokens, most)

    answer.drafters[0].guess = noted  # type: ignore[method-assign]
    for step in range(1, 60):
        sequence.tokens.append(200 + step)
        assert drafted(speculation, sequence) == ()
    assert asked[:5] == [1, 3, 7, 15, 23] and asked[-1] == 55
    for token in PROMPT[:30]:
        sequence.tokens.append(token)
        drafts = drafted(speculation, sequence)
    assert drafts[0] == PROMPT[30], "one that begins to repeat is noticed all the same"
    assert asked[-3:] == [sequence.new_tokens - 2, sequence.new_tokens - 1, sequence.new_tokens]


def test_an_account_pays_for_what_it_holds_and_no_more() -> None:
    account = Account()
    assert account.rows_at([]) == 0
    assert account.rows_at([0.3, 0.6, 0.9]) == 3
    assert account.rows_at([0.3, 0.6, 1.5]) == 2  # the third may be tried, so all count as what they cost with it
    account.pay(2, 0.5)
    assert account.tokens == 0 and account.rows_at([0.3]) == 0
    account.note(came=20, right=0)
    assert account.rows_at([0.3]) == 1


def test_what_costs_more_than_it_can_bring_can_still_be_tried_once() -> None:
    account = Account()
    assert account.rows_at([7.0]) == 1
    account.pay(1, 7.0)
    assert account.tokens == 0


def test_rows_that_seem_to_cost_nothing_are_counted() -> None:
    account = Account()
    assert account.rows_at([0.0]) == 100


def test_gains_are_saved_up_to_a_limit() -> None:
    account = Account()
    account.note(came=1000, right=900)
    assert account.tokens == MOST_TOKENS
