"""What a request may ask of an answer's form, as rules; and what is refused, by name."""

import json
from typing import Any

import pytest

from engine.errors import RequestError
from engine.text.constraints import rules
from engine.text.constraints.rules import choice_rule, json_object_rule, lark_grammar, regex_rule
from tests.engine.text.constraints.tokenizers import constraint, led, matches, may_end, spelled


@pytest.mark.parametrize("text", ["{}", '{"a": 1}', '{"a":[1,{"b":null}]}', '{\n  "a": {\n    "b": "ü"\n  }\n}'])
def test_any_json_object_is_an_object(text: str) -> None:
    assert matches(json_object_rule(), text)


@pytest.mark.parametrize("text", ["[]", "1", '"a"', " {}", "{} ", "{'a': 1}", '{"a": 1,}', '{"a"}', "{"])
def test_nothing_else_is_an_object(text: str) -> None:
    assert not matches(json_object_rule(), text)


@pytest.mark.parametrize("white", ["  ", "\t", "\n\n", "\n" + " " * 33, "\r\n"])
def test_white_space_cannot_go_on_for_ever(white: str) -> None:
    assert matches(json_object_rule(), '{ "a" :\n    1\n}')
    assert not matches(json_object_rule(), f'{{{white}"a":1}}')


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("[a-c]+", "abc", "abd"),
        ("a/b|\"'", "a/b", "a"),
        ("a\\/b", "a/b", "ab"),
        ("a\nb", "a\nb", "anb"),
        ("^a$", "a", "aa"),
        ("(?i)yes", "YeS", "no"),
        ("\\d{2}", "42", "4"),
        ("é+|日本", "日本", "日"),
        ("", "", "a"),
        ("(|a)b?", "", "c"),
        ("#x // y", "#x // y", "#x"),
    ],
)
def test_a_regex_matches_the_whole_answer(pattern: str, good: str, bad: str) -> None:
    rule = regex_rule(pattern, param="regex")
    assert matches(rule, good) and not matches(rule, bad)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=a)b", "look-around"),
        ("(?<!a)b", "look-around"),
        (r"(a)\1", "backreferences"),
        ("(a", "unclosed group"),
        ("[z-a]", "range"),
        ("*", "repetition"),
        ("(" * 1000 + ")" * 1000, "nest"),
        ("a" * 20_000, "longer than"),
    ],
)
def test_a_regex_that_cannot_be_enforced_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(RequestError, match=reason) as error:
        regex_rule(pattern, param="structured_outputs.regex")
    assert error.value.param == "structured_outputs.regex"


CHOICES = ["yes", "yes, but", 'a "quote" / \\ slash', "line\nbreak", "日本 🧑‍🚀", "(a|b)*", "\x00\x7f", ""]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_choice_is_taken_as_it_is_written(choice: str) -> None:
    assert matches(choice_rule(CHOICES, param="choice"), choice)


@pytest.mark.parametrize("other", ["no", "ye", "a", "yes, but not"])
def test_no_other_choice_is_taken(other: str) -> None:
    assert not matches(choice_rule(CHOICES, param="choice"), other)


def test_a_single_choice_is_the_answer() -> None:
    matcher = constraint(choice_rule(["only"], param="choice")).start()
    assert led(matcher, spelled("only")) and matcher.is_complete and may_end(matcher)


def test_ten_thousand_choices_are_fine() -> None:
    rule = choice_rule([f"choice {number}" for number in range(rules.MOST_CHOICES - 2000)], param="choice")
    assert matches(rule, "choice 7777") and not matches(rule, "choice x")


@pytest.mark.parametrize(
    ("choices", "where"),
    [([], "c"), (["a"] * 10_001, "c"), (["a", "\ud83d"], "c[1]"), (["x" * 100_001], "c")],
)
def test_choices_that_cannot_be_made_are_refused(choices: list[str], where: str) -> None:
    with pytest.raises(RequestError) as error:
        choice_rule(choices, param="c")
    assert error.value.param == where


def test_a_users_grammar_keeps_its_names_to_itself() -> None:
    nested = lark_grammar('start: text ":" NUMBER\ntext: /[a-z]+/ // } a comment\nNUMBER: /[0-9]+/', param="grammar")
    grammar = f'"<" inner text\ninner: {nested}\ntext: ">"'
    assert matches(grammar, "<abc:12>") and not matches(grammar, "<>:12>")


def test_a_gbnf_grammar_is_refused_with_a_hint() -> None:
    with pytest.raises(RequestError, match=r"GBNF.*Lark.*start") as error:
        lark_grammar('root ::= "yes" | answer\nanswer ::= [a-z]+', param="grammar")
    assert error.value.param == "grammar"


@pytest.mark.parametrize("source", ['begin: "a"', 'start: "a" }\nother: "b"', "start: nothing", 'start: "a'])
def test_a_users_grammar_that_is_wrong_is_refused(source: str) -> None:
    with pytest.raises(RequestError, match="cannot be used"):
        constraint(lark_grammar(source, param="grammar"))


def test_a_users_grammar_is_bounded() -> None:
    with pytest.raises(RequestError, match="longer than"):
        lark_grammar('start: "' + "a" * rules.LONGEST_LARK + '"', param="grammar")


def test_an_enum_forces_its_bytes_whatever_the_model_wants() -> None:
    """BB-001: characters of several tokens come out whole."""
    text = "赵🧑‍🚀é한😀ß"
    rule = rules.json_schema_rule({"type": "string", "enum": [text]}, param="s")
    matcher = constraint(rule).start()
    assert led(matcher, spelled(json.dumps(text, ensure_ascii=False))) and matcher.is_complete


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, "x" * (1 << 20)])
def test_what_is_no_json_or_too_much_of_it_is_refused(value: Any) -> None:
    with pytest.raises(RequestError) as error:
        rules.json_schema_rule({"const": value}, param="s")
    assert error.value.param is not None and error.value.param.startswith("s")
