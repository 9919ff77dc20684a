"""Run as a program: what the server costs, measured on a scripted engine with a token for each stream at every turn.

    python -m tests.server.scripted.measure_overhead

Prints the tokens a second that 16 streams get from a server on one core, read by a client on another, and the median of
the time to the first token, of requests sent one after another.
"""

import os
import socket
import statistics
import subprocess
import sys
import threading
import time

import httpx

STREAMS = 16
TOKENS = 2000
BODY = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}], "stream": True}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def read_stream(url: str, counts: list[int]) -> None:
    with httpx.Client(timeout=120) as client, client.stream("POST", url, json=BODY) as answer:
        counts.append(sum(chunk.count(b'"content":"word') for chunk in answer.iter_raw()))


def first_token_seconds(client: httpx.Client, url: str) -> float:
    begin = time.perf_counter()
    with client.stream("POST", url, json={**BODY, "max_tokens": 1}) as answer:
        for chunk in answer.iter_raw():
            if b'"content":"word' in chunk:
                return time.perf_counter() - begin
    raise AssertionError("the stream ended without a token")


def throughput(url: str) -> float:
    counts: list[int] = []
    readers = [threading.Thread(target=read_stream, args=(url, counts)) for _ in range(STREAMS)]
    begin = time.perf_counter()
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    seconds = time.perf_counter() - begin
    assert len(counts) == STREAMS and min(counts) > 0
    return STREAMS * TOKENS / seconds


def main() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    cores = sorted(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "tests.server.scripted.serve", str(port), "fast", "1"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, cores[:1]))
    try:
        os.sched_setaffinity(0, cores[-1:])
        with httpx.Client(timeout=60) as client:
            while True:
                try:
                    if client.get(f"http://127.0.0.1:{port}/ready").status_code == 200:
                        break
                except httpx.TransportError:
                    time.sleep(0.1)
            waits = [first_token_seconds(client, url) for _ in range(50)]
        print(f"time to first token: median {statistics.median(waits) * 1e3:.2f} ms")
        for _ in range(3):
            print(f"{STREAMS} streams: {throughput(url):.0f} tokens/s")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
