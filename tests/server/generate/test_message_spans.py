"""Which tokens are which message's, with templates that trim, leave out and rewrite."""

from typing import Any

import pytest

from engine.text.chat_template import ChatTemplate
from server.generate.message_spans import MARK, marked_messages, message_of, message_spans
from tests.server.scripted.engine import ScriptedTokenizer

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "user"},
    {"role": "user", "content": "  Grüße 🙂 \n"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": "Paris"}'}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "<|im_end|>"},
    {"role": "user", "content": "user"},
]


def told(source: str, chat: list[dict[str, Any]]) -> tuple[list[str], list[int | None]]:
    """The text of each message's tokens, and the message of every token."""
    tokenizer = ScriptedTokenizer()
    template = ChatTemplate(
        source, bos_token="", eos_token="<|im_end|>", control_tokens=tokenizer.control_tokens, user_tokens=()
    )
    rendered = template.render(chat)
    tokens = tokenizer.encode_rendered(rendered)
    spans = message_spans(template.render(marked_messages(chat)).text, rendered.text, tokens, tokenizer)
    texts = [b"".join(map(tokenizer.token_bytes, tokens[span.start : span.stop])).decode() for span in spans]
    return texts, [message_of(place, spans) for place in range(len(tokens))]


def test_each_message_has_the_tokens_of_its_own_words() -> None:
    texts, owners = told(CHATML, CHAT)
    assert texts[:2] == ["user", "Grüße 🙂"]
    assert texts[2].startswith("look") and texts[2].endswith("Paris")
    assert texts[3:] == ["<|im_end|>", "user"]
    assert owners[0] is None and owners[-1] is None
    assert [owner for owner in dict.fromkeys(owners) if owner is not None] == [0, 1, 2, 3, 4]


def test_a_message_that_the_template_leaves_out_has_no_tokens() -> None:
    texts, _ = told("{% for m in messages[1:] %}{{ m.role }}: {{ m.content }}\n{% endfor %}", CHAT[:2])
    assert [text.strip() for text in texts] == ["", "Grüße 🙂"]


def test_past_the_point_where_marks_change_the_text_nothing_is_known() -> None:
    source = "{% for m in messages %}{{ m.content }};{% if m.content == 'user' %}!{% endif %}{% endfor %}"
    texts, owners = told(source, [CHAT[0], CHAT[1], CHAT[0]])
    assert texts[0] == "user" and texts[1:] == ["", ""]
    assert set(owners) == {0, None}


@pytest.mark.parametrize("text", [MARK, f"{MARK}99999{MARK}", f"a{MARK}0{MARK}"])
def test_a_message_with_marks_of_its_own_tells_nothing(text: str) -> None:
    texts, owners = told(CHATML, [CHAT[0], {"role": "user", "content": text}])
    assert texts == [] and set(owners) == {None}
