"""Every kind of answer and stream, byte for byte as it was recorded.

OCTAVO_RECORD=1 pytest tests/server/test_recorded_bytes.py writes the records anew, where bytes change on purpose: the
difference then shows in the commit. What is random or a time is masked, and nothing else.
"""

import json
import os
import re
from pathlib import Path

import httpx
import pytest

from server.app import create_app
from tests.server.harness import http_client, ready_serving
from tests.server.recorded_cases import CASES, Call, Case, hello

RECORDS = Path(__file__).with_name("recorded")
IS_RECORDING = os.environ.get("OCTAVO_RECORD") == "1"
# What differs from run to run, and what stands in its place.
MASKS = (
    (re.compile(r"\b(chatcmpl|cmpl|embd|msg|resp|rs|fc|call|toolu|req)([-_])[0-9a-f]{12,}\b"), r"\1\2ID"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "HEX32"),
    (re.compile(r'"(created|created_at|completed_at|uptime_seconds|start_time)":[0-9.]+'), r'"\1":TIME'),
    (re.compile(r'"(signature|obfuscation)":"[^"]*"'), r'"\1":"MASKED"'),
    (re.compile(r"^x-request-id: .*$", re.MULTILINE), "x-request-id: MASKED"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_the_bytes_of(case: Case) -> None:
    compare(case.name, "\n".join(await answers_of(case)))


async def test_the_names_of_all_metrics() -> None:
    async with http_client(hello()) as client:
        await client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hi"}]})
        text = (await client.get("/metrics")).text
    names = re.findall(r"^(# (?:HELP|TYPE) .*|\w+(?:\{[^}]*\})?)", text, re.MULTILINE)
    compare("metrics", "\n".join(names) + "\n")


async def test_the_operations_of_the_document() -> None:
    """Their schemas are compared with their answers elsewhere."""
    async with http_client(hello()) as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
    compare("operations", "".join(sorted(f"{method} {path}\n" for path in paths for method in paths[path])))


async def answers_of(case: Case) -> list[str]:
    transport = httpx.ASGITransport(app=create_app(await ready_serving(case.model(), case.options)))
    told, last_id = [], ""
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for call in case.calls:
            answer = await send(client, call, last_id)
            told.append(f">>> {call.method} {call.path} {shown(call)}\n{as_text(answer)}")
            if answer.headers.get("content-type") == "application/json" and answer.content:
                last_id = str(as_object(answer).get("id", last_id))
    return told


async def send(client: httpx.AsyncClient, call: Call, last_id: str) -> httpx.Response:
    content = json.dumps(call.body).encode() if isinstance(call.body, dict) else call.body
    headers = {"content-type": "application/json", **call.headers} if isinstance(call.body, dict) else call.headers
    return await client.request(call.method, call.path.replace("{id}", last_id), content=content, headers=headers)


def as_object(answer: httpx.Response) -> dict[str, object]:
    value = answer.json()
    return value if isinstance(value, dict) else {}


def shown(call: Call) -> str:
    body = json.dumps(call.body, ensure_ascii=False) if isinstance(call.body, dict) else repr(call.body or b"")
    return f"{body[:200]} {dict(call.headers) or ''}".rstrip()


def as_text(answer: httpx.Response) -> str:
    headers = "".join(f"{name}: {value}\n" for name, value in sorted(answer.headers.items()) if name != "date")
    text = f"{answer.status_code}\n{headers}\n{answer.content.decode()}\n"
    for pattern, mask in MASKS:
        text = pattern.sub(mask, text)
    return re.sub(r"content-length: \d+", "content-length: N", text) if "ID" in text or "TIME" in text else text


def compare(name: str, told: str) -> None:
    record = RECORDS / f"{name}.txt"
    if IS_RECORDING:
        record.write_text(told, "utf-8")
    assert told == record.read_text("utf-8")
