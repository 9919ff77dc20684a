"""Area messages: what Claude Code sends of its own accord, answered by a real engine."""

from typing import Any

import pytest

from tests.cases.real import CHAT_PATH, HI, Json, RealServer

PATH = "/v1/messages?beta=true"
COUNT_PATH = "/v1/messages/count_tokens?beta=true"
BETAS = {"anthropic-version": "2023-06-01", "anthropic-beta": "context-management-2025-06-27,unheard-of-2031-01-01"}
RULES = "You are a coding agent. Read before you write; test what you change. " * 20
KEEP_ALL: Json = {"type": "clear_thinking_20251015", "keep": "all"}
REACHED: Json = {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 1}}


def billing(nonce: str) -> str:
    return f"x-anthropic-billing-header: cc_version=2.1.42.834; cc_entrypoint=cli; cch={nonce};"


def in_blocks(nonce: str) -> list[Json]:
    rules = {"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}}
    return [{"type": "text", "text": billing(nonce)}, rules]


def in_one_text(nonce: str) -> str:
    return f"{billing(nonce)}\n{RULES}"


@pytest.mark.parametrize("system", [in_blocks, in_one_text])
def test_a_telemetry_line_with_a_nonce_leaves_the_cache_whole(calls: RealServer, system: Any) -> None:
    """NB-01: a system text that opens with a nonce spoils the prefix cache for all that follows, at every turn."""

    def asked(nonce: str) -> tuple[Json, str]:
        body = {"max_tokens": 1, "temperature": 0, "messages": HI, "system": system(nonce)}
        answer = calls.post(PATH, body, **BETAS)
        assert answer.status_code == 200, answer.text
        return answer.json()["usage"], answer.headers["x-ignored-params"]

    asked("65abc")
    (other, named), (same, _) = asked("0aaa9"), asked("0aaa9")
    assert other["cache_read_input_tokens"] == same["cache_read_input_tokens"] > len(RULES) * 0.95
    assert {"system", "system[0]"} & set(named.split(","))


@pytest.mark.parametrize("role", ["system", "developer"])
def test_so_does_the_line_where_a_gateway_passes_it_on(calls: RealServer, role: str) -> None:
    """NB-01: gateways turn the system text into a chat's or a response's; the line is left out of those alike."""

    def cached(nonce: str) -> list[int]:
        chat = {"messages": [{"role": role, "content": in_blocks(nonce)}, *HI], "max_tokens": 1}
        response = {"instructions": in_one_text(nonce), "input": "Hi", "max_output_tokens": 16, "temperature": 0}
        usages = calls.answer(CHAT_PATH, chat)["usage"], calls.answer("/v1/responses", response)["usage"]
        return [usages[0]["prompt_tokens_details"]["cached_tokens"], usages[1]["input_tokens_details"]["cached_tokens"]]

    cached("1")
    assert cached("22") == cached("22")
    assert min(cached("333")) > len(RULES) * 0.95


@pytest.mark.parametrize("edits", [[], [KEEP_ALL], [REACHED, {"type": "unheard_of_20310101"}]])
def test_context_management_is_taken_and_the_history_stays_whole(calls: RealServer, edits: list[Json]) -> None:
    """NB-03: edits of the context are sent unasked; they only shorten what is read, so they are named and not done."""
    prompt = {"messages": HI, "context_management": {"edits": edits}}
    answer = calls.post(PATH, {**prompt, "max_tokens": 8, "metadata": {"user_id": "u"}}, **BETAS)
    count = calls.post(COUNT_PATH, prompt, **BETAS)
    plain = calls.post(PATH, {"max_tokens": 8, "messages": HI})
    for one in (answer, count):
        assert one.status_code == 200, one.text
        assert ("context_management" in one.headers.get("x-ignored-params", "").split(",")) == bool(edits)
    usage = answer.json()["usage"]
    total = plain.json()["usage"]["input_tokens"] + plain.json()["usage"]["cache_read_input_tokens"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == count.json()["input_tokens"] == total
