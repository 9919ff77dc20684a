"""Thinking, text and calls come out of an answer as the model meant them."""

import json

import pytest

from engine.api.request import Token
from engine.text.formats.parts import CallArguments, CallBegin, CallEnd, Content, Reasoning, Tool
from tests.engine.text.formats.answers import FORMATS, calls_of, ended, make, parse, read, tokens_of

WEATHER = Tool(
    "weather",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "units": {"type": ["string", "null"]},
            "spots": {"type": "array", "items": {"type": "number"}},
        },
        "required": ["city"],
    },
)
DSML = "\uff5cDSML\uff5c"
DEEPSEEK = {
    "begin": "<\uff5ctool\u2581calls\u2581begin\uff5c>",
    "end": "<\uff5ctool\u2581calls\u2581end\uff5c>",
    "call": "<\uff5ctool\u2581call\u2581begin\uff5c>",
    "done": "<\uff5ctool\u2581call\u2581end\uff5c>",
    "sep": "<\uff5ctool\u2581sep\uff5c>",
}


def dsml(section: str) -> str:
    return (
        f'<{DSML}{section}>\n<{DSML}invoke name="weather">\n'
        f'<{DSML}parameter name="city" string="true">Rome</{DSML}parameter>\n'
        f'<{DSML}parameter name="days" string="false">3</{DSML}parameter>\n'
        f'</{DSML}invoke>\n<{DSML}invoke name="weather">\n'
        f'<{DSML}parameter name="city" string="true">Oslo</{DSML}parameter>\n'
        f'<{DSML}parameter name="days">4</{DSML}parameter>\n</{DSML}invoke>\n</{DSML}{section}>'
    )


def xml(begin: str, line: str, end: str) -> str:
    return "\n".join(
        f"{begin}\n<function=weather>\n<parameter=city>{line}{city}{line}</parameter>\n"
        f"<parameter=days>{line}{days}{line}</parameter>\n</function>\n{end}"
        for city, days in (("Rome", 3), ("Oslo", 4))
    )


ROME, OSLO = '{"city": "Rome", "days": 3}', '{"city": "Oslo", "days": 4}'
TWO_CALLS = {
    "hermes": f'<tool_call>\n{{"name": "weather", "arguments": {ROME}}}\n</tool_call>\n'
    f'<tool_call>\n{{"name": "weather", "arguments": {OSLO}}}\n</tool_call>',
    "llama3": f'{{"name": "weather", "parameters": {ROME}}}; {{"name": "weather", "parameters": {OSLO}}}',
    "qwen_xml": xml("<tool_call>", "\n", "</tool_call>"),
    "seed_xml": xml("<seed:tool_call>", "", "</seed:tool_call>"),
    "minimax": "<minimax:tool_call>\n"
    + "".join(
        f'<invoke name="weather">\n<parameter name="city">{city}</parameter>\n'
        f'<parameter name="days">{days}</parameter>\n</invoke>\n'
        for city, days in (("Rome", 3), ("Oslo", 4))
    )
    + "</minimax:tool_call>",
    "deepseek_v3": "{begin}".format(**DEEPSEEK)
    + "\n".join(
        "{call}function{sep}weather\n```json\n".format(**DEEPSEEK) + arguments + "\n```{done}".format(**DEEPSEEK)
        for arguments in (ROME, OSLO)
    )
    + DEEPSEEK["end"],
    "deepseek_v3.1": "{begin}{call}weather{sep}".format(**DEEPSEEK)
    + ROME
    + "{done}{call}weather{sep}".format(**DEEPSEEK)
    + OSLO
    + "{done}{end}".format(**DEEPSEEK),
    "deepseek_v3.2": dsml("function_calls"),
    "deepseek_v4": dsml("tool_calls"),
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
    f"{ROME}<|tool_call_end|><|tool_call_begin|>functions.weather:1<|tool_call_argument_begin|>{OSLO}"
    "<|tool_call_end|><|tool_calls_section_end|>",
}


def test_every_format_has_an_example() -> None:
    assert set(TWO_CALLS) == set(FORMATS)


@pytest.mark.parametrize("marked", [True, False], ids=["marks", "text"])
@pytest.mark.parametrize("name", FORMATS)
def test_two_calls_are_numbered_and_nothing_of_them_is_text(name: str, marked: bool) -> None:
    """BB-037: the second call has an index of its own."""
    parts = read(name, TWO_CALLS[name] + "\n", WEATHER, marked=marked)
    assert parts == [
        CallBegin(0, "weather"),
        CallArguments(0, ROME),
        CallEnd(0),
        CallBegin(1, "weather"),
        CallArguments(1, OSLO),
        CallEnd(1),
    ]


@pytest.mark.parametrize("name", FORMATS.keys() - {"llama3"})
def test_text_before_a_call_is_content_without_the_space_between(name: str) -> None:
    parts = read(name, "Let me see.\n\n" + TWO_CALLS[name], WEATHER)
    assert parts[0] == Content("Let me see.")
    assert calls_of(parts) == [("weather", ROME), ("weather", OSLO)]


@pytest.mark.parametrize("name", FORMATS)
def test_thinking_then_calls(name: str) -> None:
    parts = read(name, "Hmm.\n</think>\n\n" + TWO_CALLS[name], WEATHER, inside=True)
    assert parts[0] == Reasoning("Hmm.\n")
    assert len(calls_of(parts)) == 2
    assert not [part for part in parts if isinstance(part, Content)]


@pytest.mark.parametrize("name", FORMATS.keys() - {"llama3"})
def test_a_call_at_a_lines_start_ends_thinking_and_a_mention_does_not(name: str) -> None:
    opening = FORMATS[name].openings[0]
    parts = read(name, f"I may write {opening} now.\n{TWO_CALLS[name]}", WEATHER, inside=True)
    assert parts[0] == Reasoning(f"I may write {opening} now.\n")
    assert len(calls_of(parts)) == 2


@pytest.mark.parametrize("name", FORMATS)
def test_a_tool_that_is_not_declared_is_text(name: str) -> None:
    parts = read(name, TWO_CALLS[name], Tool("other", {}))
    assert parts == [Content(TWO_CALLS[name])]


@pytest.mark.parametrize("name", FORMATS)
def test_without_tools_all_is_text(name: str) -> None:
    assert read(name, TWO_CALLS[name] + "\n") == [Content(TWO_CALLS[name] + "\n")]


@pytest.mark.parametrize("name", FORMATS)
def test_a_cut_call_keeps_what_there_is_and_closes_nothing(name: str) -> None:
    text = TWO_CALLS[name]
    cut = text.index("Oslo") + 2
    parts = read(name, text[:cut], WEATHER)
    assert calls_of(parts) == [("weather", ROME), ("weather", '{"city": "Os')]
    assert ended(parts) == 1


@pytest.mark.parametrize("name", FORMATS)
def test_every_cut_gives_a_beginning_of_the_arguments(name: str) -> None:
    form, tokenizer = make(name)
    tokens = tokens_of(TWO_CALLS[name], form, tokenizer)
    for size in range(len(tokens)):
        parts = parse(form.parser(inside_thinking=False, tools=[WEATHER]), [tokens[:size]])
        for (_, arguments), whole in zip(calls_of(parts), (ROME, OSLO), strict=False):
            assert whole.startswith(arguments)


def test_the_name_is_sent_as_soon_as_it_is_complete() -> None:
    form, tokenizer = make("hermes")
    parser = form.parser(inside_thinking=False, tools=[WEATHER])
    assert parser.push(tokens_of('<tool_call>\n{"name": "weather', form, tokenizer)) == []
    assert parser.push([Token(0, '"')]) == [CallBegin(0, "weather")]
    assert parser.calls == 1


@pytest.mark.parametrize("name", ["qwen_xml", "deepseek_v4"])
def test_a_string_is_sent_while_it_is_written(name: str) -> None:
    form, tokenizer = make(name)
    parser = form.parser(inside_thinking=False, tools=[WEATHER])
    parser.push(tokens_of(TWO_CALLS[name].partition("Rome")[0], form, tokenizer))
    assert parser.push([Token(0, 'a"b')]) == [CallArguments(0, 'a\\"b')]


def qwen(parameters: str) -> str:
    parts = read("qwen_xml", f"<tool_call>\n<function=weather>\n{parameters}</function>\n</tool_call>", WEATHER)
    [(name, arguments)] = calls_of(parts)
    assert name == "weather"
    assert parts[-1] == CallEnd(0)
    json.loads(arguments)
    return arguments


@pytest.mark.parametrize(
    ("parameters", "arguments"),
    [
        ("", "{}"),
        ("<parameter=city>\n\n\nx\n\n</parameter>\n", '{"city": "\\n\\nx\\n"}'),
        ("<parameter=city>x</parameter>\n", '{"city": "x"}'),
        ("<parameter=city>\n</parameter>\n", '{"city": ""}'),
        ("<parameter=city>\n7\n</parameter>\n", '{"city": "7"}'),
        ("<parameter=city>\nx\n<parameter=days>\n2\n</parameter>\n", '{"city": "x", "days": 2}'),
        ("<parameter=city>\nx\n", '{"city": "x"}'),
        ("<parameter=days>\ntwo\n</parameter>\n", '{"days": "two"}'),
        ("<parameter=days>\n1.5\n</parameter>\n", '{"days": "1.5"}'),
        ("<parameter=units>\nnull\n</parameter>\n", '{"units": null}'),
        ("<parameter=units>\nNone\n</parameter>\n", '{"units": null}'),
        ('<parameter=units>\n"C"\n</parameter>\n', '{"units": "\\"C\\""}'),
        ("<parameter=spots>\n[1, 2.50]\n</parameter>\n", '{"spots": [1, 2.50]}'),
        ("<parameter=spots>\n[1, NaN]\n</parameter>\n", '{"spots": "[1, NaN]"}'),
        ("<parameter=new>\n5\n</parameter>\n", '{"new": "5"}'),
        ('<parameter=a"b>\n\u00e9\U0001f600\\\t</parameter>\n', '{"a\\"b": "\u00e9\U0001f600\\\\\\t"}'),
    ],
)
def test_values_between_tags_become_json_by_the_schema(parameters: str, arguments: str) -> None:
    assert qwen(parameters) == arguments


def test_a_string_may_hold_what_looks_like_an_end() -> None:
    """BB-039: text that looks like a tag stays in the string."""
    text = '{"name": "weather", "arguments": {"city": "a\\"}</tool_call>"}}'
    form, tokenizer = make("hermes")
    pieces = [
        tokens_of("<tool_call>\n", form, tokenizer),
        [Token(0, text)],
        tokens_of("\n</tool_call>", form, tokenizer),
    ]
    parts = parse(form.parser(inside_thinking=False, tools=[WEATHER]), pieces)
    assert calls_of(parts) == [("weather", '{"city": "a\\"}</tool_call>"}')]
    assert not [part for part in parts if isinstance(part, Content)]


def test_a_marked_tag_in_ordinary_letters_is_text() -> None:
    form, _ = make("hermes")
    text = "</think> <think> <tool_call>" + TWO_CALLS["hermes"]
    assert parse(form.parser(inside_thinking=False, tools=[WEATHER]), [[Token(0, text)]]) == [Content(text)]
    assert parse(form.parser(inside_thinking=True, tools=[WEATHER]), [[Token(0, text)]]) == [Reasoning(text)]


@pytest.mark.parametrize("marked", [True, False], ids=["marks", "text"])
def test_thinking_that_the_model_opens_itself(marked: bool) -> None:
    assert read("hermes", "\n<think>\nHm </x>.\n</think>\n\n\nYes\n", marked=marked) == [
        Reasoning("Hm </x>.\n"),
        Content("Yes\n"),
    ]


@pytest.mark.parametrize("marked", [True, False], ids=["marks", "text"])
def test_thinking_without_an_end_is_all_thinking(marked: bool) -> None:
    """BB-048: nothing of it spills into the content."""
    text = "I wonder </thin"
    assert read("hermes", text, inside=True, marked=marked) == [Reasoning(text)]
    assert read("hermes", "<think>" + text, inside=True, marked=marked) == [Reasoning(text)]


def test_a_closing_tag_outside_of_thinking_is_never_content() -> None:
    """BB-050."""
    assert read("hermes", "Hello</think> there") == [Content("Hello there")]


def test_reasoning_tokens_are_those_of_the_thinking() -> None:
    form, tokenizer = make("hermes")
    parser = form.parser(inside_thinking=False, tools=())
    parser.push(tokens_of("<think>abc</think>defg", form, tokenizer))
    parser.finish()
    assert parser.reasoning_tokens == 5


def test_a_text_that_only_begins_like_a_call_stays_whole() -> None:
    for text in ("<tool_call", "<tool_call>", '<tool_call>\n{"name": "wea', "a <tool_call> b", '<tool_call>{"x": 1}'):
        assert read("hermes", text, WEATHER, marked=False) == [Content(text)]
    assert read("llama3", '{"city": "Rome"}\n', WEATHER) == [Content('{"city": "Rome"}\n')]
    assert read("llama3", 'Call {"name": "weather", "parameters": {}}', WEATHER)[1:] == []


def test_text_after_a_call_is_content() -> None:
    parts = read("hermes", TWO_CALLS["hermes"] + "\nDone.", WEATHER)
    assert parts[-1] == Content("\nDone.")


def test_a_call_without_arguments_has_an_empty_object() -> None:
    assert calls_of(read("hermes", '<tool_call>{"name": "weather"}</tool_call>', WEATHER)) == [("weather", "{}")]


@pytest.mark.parametrize("section", ["function_calls", "tool_calls", "toolcalls", "tool"])
def test_deepseeks_names_for_a_section_are_all_understood(section: str) -> None:
    assert len(calls_of(read("deepseek_v4", dsml(section), WEATHER))) == 2
