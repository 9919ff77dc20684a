"""Raw byte streams on a real socket: the server lives on, and lets go of what its clients let go of.

OCTAVO_FUZZ_STREAMS sets how many there are.
"""

import logging
import os
import re
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.app_under_test import played
from tests.fuzz.streams import streams
from tests.server.harness import LiveServer, live_server
from tests.server.scripted.engine import ScriptedModel, ScriptedService

STREAMS = int(os.environ.get("OCTAVO_FUZZ_STREAMS", "300"))
QUIET_SECONDS = 0.03  # how long a client waits for more
PATIENCE_SECONDS = 20  # for what the server does by itself
STATUS = re.compile(rb"HTTP/1\.1 ([1-5]\d\d) ")


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server(ScriptedModel(service=ScriptedService(played))) as live:
        yield live


def test_any_bytes_at_all(server: LiveServer, caplog: pytest.LogCaptureFixture) -> None:
    with httpx.Client(base_url=server.url) as health:

        @settings(
            max_examples=STREAMS,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(raw=streams, pieces=st.integers(1, 3), resets=st.booleans())
        def check(raw: bytes, pieces: int, resets: bool) -> None:
            assert_no_fault(exchange(server.port, raw, pieces, resets))
            assert health.get("/health").status_code == 200

        check()
    assert_everything_is_let_go_of(server)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info] == []


def exchange(port: int, raw: bytes, pieces: int, resets: bool) -> bytes:
    """Send the bytes in so many pieces, read what comes until there is silence, and leave."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as client:
        if resets:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with suppress(ConnectionError):  # the server may have closed already: the rest is of no use
            step = len(raw) // pieces + 1
            for start in range(0, len(raw), step):
                client.sendall(raw[start : start + step])
            client.settimeout(QUIET_SECONDS)
            with suppress(TimeoutError):
                while data := client.recv(1 << 16):
                    received += data
    return received


def assert_no_fault(received: bytes) -> None:
    """What came back begins with an answer, and no answer in it is a 5xx."""
    if received:
        assert STATUS.match(received)
    assert not [status for status in STATUS.findall(received) if status.startswith(b"5")]


def assert_everything_is_let_go_of(server: LiveServer) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    connections = server.http.server_state.connections
    while (connections or server.model.service.running) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not connections
    assert server.model.service.running == 0
