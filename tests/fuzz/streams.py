"""Byte streams in place of HTTP requests: whole, damaged, cut, one behind the other, and noise."""

import json
import re

from hypothesis import strategies as st

from tests.fuzz.bodies import BODIES


def request(line: bytes, *headers: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join([line, b"Host: localhost", *headers, b"", body])


def post(path: str, body: bytes) -> bytes:
    headers = (b"Content-Type: application/json", b"Content-Length: %d" % len(body))
    return request(b"POST %b HTTP/1.1" % path.encode(), *headers, body=body)


def chunked(path: str, *chunks: bytes) -> bytes:
    headers = (b"Content-Type: application/json", b"Transfer-Encoding: chunked")
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))
    return request(b"POST %b HTTP/1.1" % path.encode(), *headers, body=pieces)


BODY = json.dumps(BODIES["/v1/chat/completions"][0]).encode()
STREAMED = json.dumps(BODIES["/v1/chat/completions"][1]).encode()
VALID = [
    request(b"GET /health HTTP/1.1"),
    request(b"GET /v1/models HTTP/1.0", b"Connection: keep-alive"),
    request(b"HEAD / HTTP/1.1", b"Connection: close"),
    request(
        b"OPTIONS /v1/chat/completions HTTP/1.1", b"Origin: http://localhost", b"Access-Control-Request-Method: POST"
    ),
    request(b"GET /v1/models/a%2Fb%00%ff?x=%zz HTTP/1.1", b"Authorization: Bearer \xff\xfe"),
    post("/v1/chat/completions", BODY),
    post("/v1/chat/completions", STREAMED),
    chunked("/v1/chat/completions", BODY[:50], BODY[50:]),
    post("/v1/messages", json.dumps(BODIES["/v1/messages"][1]).encode()),
    request(b"POST /v1/completions HTTP/1.1", b"Content-Type: application/json", b"Expect: 100-continue"),
]
INSERTS = [
    *(b"\r\n", b"\n", b"\r", b"\x00", b"\xff", b" ", b":", b"\t", b"%", b"..", b"/../", b"\r\n\r\n", b"0\r\n\r\n"),
    *(b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Content-Length: 99999999999999999999\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Host: evil.example\r\n"),
    *(b"Content-Encoding: gzip\r\n", b"Upgrade: websocket\r\nConnection: Upgrade\r\n", b"Upgrade: h2c\r\n"),
    *(b"Connection: close\r\n", b"X-Request-Id: a\r\n b\r\n", b"X: " + b"a" * 70_000 + b"\r\n", b"X: y\r\n" * 300),
    *(b"fffffffffffffffff\r\n", b"5;x=y\r\nhello\r\n", b"-1\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    *(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n\r\n",
    ),
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid request with pieces taken out of it and put into it."""
    raw = draw(st.sampled_from(VALID))
    for _ in range(draw(st.integers(0, 3))):
        line_starts = [match.end() for match in re.finditer(b"\r\n", raw[:300])] or [0]
        # More often in the head than in the body, where damage is the JSON parser's affair.
        start = draw(st.sampled_from(line_starts) | st.integers(0, min(len(raw), 250)))
        end = min(len(raw), start + draw(st.sampled_from((0, 0, 0, 1, 2, 10, 10_000))))
        raw = raw[:start] + draw(st.sampled_from(INSERTS) | st.binary(max_size=6)) + raw[end:]
    return raw


pipelined = st.lists(damaged() | st.sampled_from(VALID), min_size=1, max_size=4).map(b"".join)
streams = st.one_of(pipelined, pipelined, pipelined, damaged(), st.binary(max_size=300))
