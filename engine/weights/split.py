"""Models that are split over several files, by the names that llama-gguf-split gives them: NAME-00001-of-00003.gguf."""

import re
from collections.abc import Sequence
from pathlib import Path

_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.ASCII)


def is_one_split(files: Sequence[Path]) -> bool:
    """Whether all files are, by their names, parts of one model."""
    names = [_NAME.fullmatch(file.name) for file in files]
    return len({name and (name["stem"], name["count"]) for name in names}) == 1 and None not in names


def missing_part(part: Path) -> str | None:
    """The name of the first part that is not beside this one; None where all are, or where the name tells nothing."""
    name = _NAME.fullmatch(part.name)
    if name is None:
        return None
    parts = (f"{name['stem']}-{number:05}-of-{name['count']}.gguf" for number in range(1, int(name["count"]) + 1))
    return next((each for each in parts if not (part.parent / each).exists()), None)
