"""Which tags a model thinks and calls with, told from the text of its chat template.

The first known format whose tell-tale tags all stand in the template is taken. A template that takes tools but shows no
format known here gets the JSON of Hermes, which most models know. So does one that takes none: its model is told of the
tools in words. A template's own switches for thinking are told by the variables that the template reads.
"""

import re
from functools import lru_cache

from engine.text.chat_template import LONGEST_SOURCE
from engine.text.formats.json_calls import JsonCalls, NamedCalls
from engine.text.formats.xml_calls import XmlCalls
from engine.text.sandbox.template_process import shared_process

_LEVELS = ("minimal", "low", "medium", "high", "xhigh", "max")
_REFUSES_EFFORT = re.compile(r"raise_exception\([^)]*effort")
_WORD = re.compile(r"[A-Za-z_]\w*")


def thinking_arguments(template_source: str, enabled: bool, effort: str | None) -> dict[str, object]:
    """The template's variables that switch thinking on or off; only those that it reads.

    `effort` is what the request calls it, from "minimal" to "max"; it says nothing where thinking is off.
    """
    arguments: dict[str, object] = {
        "enable_thinking": enabled,
        "thinking": enabled,
        "thinking_mode": "enabled" if enabled else "disabled",
    }
    if not enabled:
        arguments |= {"thinking_budget": 0, "reasoning": False}
    level = _level(template_source, effort) if enabled else _least_level(template_source)
    if level is not None:
        arguments |= {"reasoning_effort": level, "thinking_effort": level}
    read = template_variables(template_source)
    return {name: value for name, value in arguments.items() if name in read}


def _level(source: str, effort: str | None) -> str | None:
    """The effort in the template's words: the nearest that it names, where it refuses all others."""
    if effort is None:
        return "high" if _names("no_think", source) else None
    if _REFUSES_EFFORT.search(source) and effort in _LEVELS and (named := [x for x in _LEVELS if _names(x, source)]):
        place = _LEVELS.index(effort)
        return min(named, key=lambda level: (abs(_LEVELS.index(level) - place), -_LEVELS.index(level)))
    return effort


def _least_level(source: str) -> str | None:
    """What the template calls thinking as little as it can; None where it names nothing of the kind."""
    return next((level for level in ("no_think", "none", "minimal", "low") if _names(level, source)), None)


def _names(level: str, source: str) -> bool:
    return f"'{level}'" in source or f'"{level}"' in source


@lru_cache(maxsize=16)
def template_variables(source: str) -> frozenset[str]:
    """The names that the template takes from its caller; where it cannot be told, every word in it is one."""
    if len(source) > LONGEST_SOURCE:
        return frozenset()
    found = shared_process().variables(source)
    return frozenset(_WORD.findall(source)) if found is None else found


THINK_TAGS = [
    ("<think>", "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
]


def _qwen_xml(name: str, opening: str, padding: str) -> XmlCalls:
    return XmlCalls(
        name=name,
        openings=(f"<{opening}>",),
        closings=(f"</{opening}>",),
        call=("<function=", ">", "</function>"),
        parameter=("<parameter=", "</parameter>"),
        key_ends=((">", "schema"),),
        padding=padding,
    )


def _dsml(name: str, section: str) -> XmlCalls:
    # Models of this family are seen to name the section in several ways.
    sections = sorted(("function_calls", "tool_calls", "toolcalls", "tool"), key=lambda each: each != section)
    return XmlCalls(
        name=name,
        openings=tuple(f"<{_DSML}{each}>" for each in sections),
        closings=tuple(f"</{_DSML}{each}>" for each in sections),
        call=(f'<{_DSML}invoke name="', '">', f"</{_DSML}invoke>"),
        parameter=(f'<{_DSML}parameter name="', f"</{_DSML}parameter>"),
        key_ends=(('" string="true">', "text"), ('" string="false">', "json"), ('">', "json")),
        many=True,
    )


_DSML = "\uff5cDSML\uff5c"
_SECTION = ("<\uff5ctool\u2581calls\u2581begin\uff5c>", "<\uff5ctool\u2581calls\u2581end\uff5c>")
_CALL = ("<\uff5ctool\u2581call\u2581begin\uff5c>", "<\uff5ctool\u2581call\u2581end\uff5c>")
_SEPARATOR = "<\uff5ctool\u2581sep\uff5c>"

QWEN_XML = _qwen_xml("qwen_xml", "tool_call", "\n")
SEED_XML = _qwen_xml("seed_xml", "seed:tool_call", "")
MINIMAX = XmlCalls(
    name="minimax",
    openings=("<minimax:tool_call>",),
    closings=("</minimax:tool_call>",),
    call=('<invoke name="', '">', "</invoke>"),
    parameter=('<parameter name="', "</parameter>"),
    key_ends=(('">', "schema"),),
    many=True,
)
DEEPSEEK_V3_2 = _dsml("deepseek_v3.2", "function_calls")
DEEPSEEK_V4 = _dsml("deepseek_v4", "tool_calls")
DEEPSEEK_V3 = NamedCalls(
    name="deepseek_v3",
    section=_SECTION,
    call=_CALL,
    before_name=f"function{_SEPARATOR}",
    after_name="\n```json\n",
    after_arguments="\n```",
)
DEEPSEEK_V3_1 = NamedCalls(name="deepseek_v3.1", section=_SECTION, call=_CALL, before_name="", after_name=_SEPARATOR)
KIMI = NamedCalls(
    name="kimi_k2",
    section=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    call=("<|tool_call_begin|>", "<|tool_call_end|>"),
    before_name="functions.",
    after_name="<|tool_call_argument_begin|>",
    numbered=True,
)
HERMES = JsonCalls(name="hermes", openings=("<tool_call>",), close="</tool_call>", padding="\n")
LLAMA3 = JsonCalls(name="llama3", openings=("<|python_tag|>",), key="parameters", separator=";", bare=True)

KnownFormat = JsonCalls | NamedCalls | XmlCalls
_KNOWN: list[tuple[tuple[str, ...], KnownFormat]] = [
    (("<seed:tool_call>", "<function="), SEED_XML),
    (("<minimax:tool_call>", "<invoke name="), MINIMAX),
    (("<tool_call>", "<function=", "<parameter="), QWEN_XML),
    ((_DSML, "function_calls"), DEEPSEEK_V3_2),
    ((_DSML, "tool_calls"), DEEPSEEK_V4),
    ((_SEPARATOR, "```json"), DEEPSEEK_V3),
    ((_SEPARATOR,), DEEPSEEK_V3_1),
    (("<|tool_call_argument_begin|>",), KIMI),
    (("<|start_header_id|>", '"parameters": '), LLAMA3),
]
_TOOLS = frozenset(("tools", "functions"))
_MARKS = (_DSML, *_SECTION, *_CALL, _SEPARATOR, *KIMI.section, *KIMI.call, KIMI.after_name)


def think_tags(source: str) -> tuple[str, str] | None:
    """What opens and closes the model's thinking, if its template tells of any."""
    return next((tags for tags in THINK_TAGS if tags[1] in source), None)


def tool_format(source: str) -> KnownFormat | None:
    """How the template has calls written, with tags as people read them; None where it has no place for tools."""
    for tags, form in _KNOWN:
        if all(tag in source for tag in tags):
            return form
    return HERMES if _TOOLS & template_variables(source) else None


def tag_tokens(thinking: tuple[str, str] | None, form: KnownFormat | None) -> list[str]:
    """The tags and parts of tags that count as such only as tokens, where the vocabulary has them."""
    tags = [*(thinking or ()), *_MARKS]
    if isinstance(form, JsonCalls | XmlCalls):
        tags += form.openings
    if isinstance(form, XmlCalls):
        tags += form.closings
    if isinstance(form, JsonCalls) and form.close:
        tags.append(form.close)
    return tags
