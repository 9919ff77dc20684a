"""Clients' telemetry in a chat's instructions, in a file of its own since docs/api.md promises the rule to every API.

A line such as `x-anthropic-billing-header: cc_version=2.1; cch=65abc;` says nothing to the model, and changes with each
request. At the head of a prompt it would keep all that follows out of the prefix cache.
"""

import re
from collections.abc import Iterable, Sequence

from server.fields.chat import InstructionMessage, Message, TextPart

_KIND = "billing|telemetry|tracing|trace|attribution|analytics|metering|request-id|nonce"
_NAME = rf"x-(?:[\w-]{{1,64}}-)?(?:{_KIND})(?:-[\w-]{{1,64}})?"
_VALUE = r"[^\s;]+(?:;[ \t]*[^\s;]+)*;?"  # words apart from each other are a sentence, which may mean something
_LINE = rf"(?:x-anthropic-billing-header:[^\r\n]*|{_NAME}:[ \t]*{_VALUE}[ \t]*)"
# Lines at the head of a text alone: further down the same line may be what somebody talks about.
TELEMETRY = re.compile(rf"\s*(?:{_LINE}(?:\r?\n|\Z)(?:[ \t]*\r?\n)*)+", re.ASCII | re.IGNORECASE)


def instruction_text(parts: Iterable[TextPart]) -> str:
    """What a system message says to its model. Parts are joined by line breaks, as other servers do."""
    texts = ((part.text, without_telemetry(part.text)) for part in parts)
    return "\n".join(kept for sent, kept in texts if kept or not sent)


def without_telemetry(text: str) -> str:
    found = TELEMETRY.match(text)
    return text[found.end() :] if found else text


def telemetry_places(messages: Sequence[Message]) -> tuple[str, ...]:
    """The paths of the texts whose telemetry the prompt leaves out."""
    return tuple(
        f"messages[{index}].content" + (f"[{place}]" if len(message.content) > 1 else "")
        for index, message in enumerate(messages)
        if isinstance(message, InstructionMessage)
        for place, part in enumerate(message.content)
        if TELEMETRY.match(part.text)
    )
