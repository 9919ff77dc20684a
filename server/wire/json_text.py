"""JSON as answers have it: no line of a stream ends within it, whatever a reader takes for the end of a line.

JSON may hold U+2028, U+2029 and U+0085 as they are. Readers that split events at the ends of lines that Unicode knows
would tear such JSON apart, so these three are written as escapes. All others are escaped by every encoder.
"""

from collections.abc import Mapping

import orjson
from starlette.responses import Response

LINE_ENDS = {character.encode(): f"\\u{ord(character):04x}".encode() for character in "\u2028\u2029\u0085"}


def encoded(value: object) -> bytes:
    """A value as JSON."""
    return line_safe(orjson.dumps(value))


def line_safe(json: bytes) -> bytes:
    """The same JSON without ends of lines: beyond ASCII it has characters within strings only."""
    if json.isascii():
        return json
    for character, escape in LINE_ENDS.items():
        json = json.replace(character, escape)
    return json


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that holds a value."""
    return answer_of(encoded(value), status, headers)


def answer_of(json: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer of JSON that is encoded already."""
    return Response(line_safe(json), status, headers, media_type="application/json")
