"""Sizes of memory as people write them: 4GiB, 512MiB, or a share, 30%."""

import re

SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([a-z]*|%)", re.IGNORECASE | re.ASCII)
PREFIXES = "kmgt"


def bytes_of(text: str, whole: int) -> int:
    """The bytes of a size; a percentage is of `whole`. Raises ValueError for what is no size, or is none at all."""
    match = SIZE.fullmatch(text.strip())
    factor = None if match is None else _factor(match[2].lower(), whole)
    if match is None or factor is None:
        raise ValueError("should be a size such as 4GiB, 512MiB or 2000000000, or a share such as 30%")
    if float(match[1]) <= 0 or (match[2] == "%" and float(match[1]) > 100):
        raise ValueError("should be more than nothing, and a share no more than 100%")
    return int(float(match[1]) * factor)


def _factor(unit: str, whole: int) -> float | None:
    """Bytes in a unit: KiB and K are 1024 of them, KB is 1000; None where there is no such unit."""
    if unit in ("", "b", "%"):
        return whole / 100 if unit == "%" else 1
    prefix, rest = PREFIXES.find(unit[0]) + 1, unit[1:]
    base = {"": 1024, "ib": 1024, "b": 1000}.get(rest)
    return None if base is None or not prefix else float(base**prefix)
