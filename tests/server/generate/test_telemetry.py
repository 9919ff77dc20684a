"""Telemetry of clients at the head of instructions: left out of the prompt, and named."""

import pytest

from server.fields.chat import ChatBody
from server.generate.prompts import plain_messages
from server.generate.telemetry import telemetry_places, without_telemetry

BILLING = "x-anthropic-billing-header: cc_version=2.1.42.834; cc_entrypoint=cli; cch=65abc;"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (BILLING, ""),
        (f"{BILLING}\nBe brief.", "Be brief."),
        (f"\n{BILLING}\r\n\r\n  Be brief.\n", "  Be brief.\n"),
        (f"{BILLING}\nx-acme-request-id: 3f2a\nBe brief.", "Be brief."),
        ("X-Anthropic-Billing-Header: anything at all\nBe brief.", "Be brief."),
        ("x-acme-telemetry: session=1; step=2\nBe brief.", "Be brief."),
        ("x-nonce: 77\nBe brief.", "Be brief."),
    ],
)
def test_lines_of_telemetry_at_the_head_are_left_out(text: str, kept: str) -> None:
    assert without_telemetry(text) == kept


@pytest.mark.parametrize(
    "text",
    [
        f"Explain this line:\n{BILLING}",
        "x-api-key: never=tell",
        "x-trace: say what you do",
        "x-anthropic-billing-header",
        "",
        "  \n",
    ],
)
def test_all_other_text_stays_as_it_is(text: str) -> None:
    assert without_telemetry(text) == text


@pytest.mark.parametrize("text", ["x-" + "a-" * 50_000, "\n" * 100_000 + "x", "x-trace: " + "a=b;" * 50_000 + " c d"])
def test_long_texts_take_no_long_look(text: str) -> None:
    assert without_telemetry(text) == text


def test_only_instructions_are_read_for_it_and_their_places_are_told() -> None:
    parts = [{"type": "text", "text": text} for text in (BILLING, "Be brief.", "")]
    messages = [
        {"role": "system", "content": parts},
        {"role": "developer", "content": f"{BILLING}\nBe kind."},
        {"role": "user", "content": BILLING},
    ]
    body = ChatBody.model_validate({"model": "m", "messages": messages})
    assert [message["content"] for message in plain_messages(body.messages)] == ["Be brief.\n", "Be kind.", BILLING]
    assert telemetry_places(body.messages) == ("messages[0].content[0]", "messages[1].content")
