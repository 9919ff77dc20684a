"""Limits on a body: its size, and how deep its JSON nests before it is parsed."""

import numpy as np

from engine.errors import RequestError

MAX_DEPTH = 100  # objects and arrays within each other; what walks a body later may recurse as deep
CHUNK = 1 << 18

QUOTE = ord('"')
STEPS = np.zeros(256, np.int32)  # how each byte outside strings changes the depth
STEPS[list(b"[{")] = 1
STEPS[list(b"]}")] = -1


def check_depth(raw: bytes) -> None:
    """Refuse JSON that nests deeper than MAX_DEPTH; linear in its length. Whether it is JSON at all is not judged."""
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _depth(raw) > MAX_DEPTH:
        raise RequestError(f"The body is nested deeper than {MAX_DEPTH} levels; make it flatter.", code="invalid_json")


def _depth(raw: bytes) -> int:
    without_escapes = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    deepest = depth = 0
    in_string = False
    for start in range(0, len(without_escapes), CHUNK):
        data = np.frombuffer(without_escapes[start : start + CHUNK], np.uint8)
        inside = np.logical_xor.accumulate(data == QUOTE) ^ in_string
        depths = depth + np.cumsum(np.where(inside, 0, STEPS[data]))
        deepest = max(deepest, int(depths.max()))
        depth, in_string = int(depths[-1]), bool(inside[-1])
    return deepest
