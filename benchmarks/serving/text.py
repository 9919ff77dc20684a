"""English-looking text without end, nearly a token a word in any vocabulary."""

import random
from collections.abc import Sequence

Message = dict[str, str]

_COMMON_WORDS = """
the of and to in is that for it as was with on by he at from his are this be not an have they which one you were all her
she there would their we him been has when who will no more if out so up said what its about than into them can only
other time new some could these two may first then do any like my now over such our man me even most made after also did
many off before must well back through years much where your way down should because long each just state those people
too little good world make very year still see own work day here between both life being under three never know same
last another while us might great old since against right house use place city light water small hand part eye head side
"""


def words(draw: random.Random, count: int) -> str:
    return " ".join(draw.choices(_COMMON_WORDS.split(), k=count))


def conversation(draw: random.Random, tokens: int, exchanges: int = 4) -> list[Message]:
    """Messages of about so many tokens: the system's, questions with their answers, and a last question.

    They begin with a number of their own, so that no two share their first word.
    """
    roles = ["system", *("user", "assistant") * exchanges, "user"]
    each = max(2, tokens // len(roles))
    return with_first_word([{"role": role, "content": words(draw, each)} for role in roles], f"{draw.getrandbits(30)}")


def with_first_word(messages: Sequence[Message], word: str) -> list[Message]:
    """The same messages, but for their very first word."""
    first, *others = messages
    _, _, rest = first["content"].partition(" ")
    return [{**first, "content": f"{word} {rest}"}, *others]
