"""All recorded cases, in the order of the files."""

from tests.server.recorded_cases import chat, completions, errors, messages, operations, responses, texts, wire
from tests.server.recorded_cases.exchange import Case

CASES: list[Case] = [
    *chat.CASES,
    *completions.CASES,
    *messages.CASES,
    *responses.CASES,
    *texts.CASES,
    *operations.CASES,
    *errors.CASES,
    *wire.CASES,
]
