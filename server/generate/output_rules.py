"""The form that a request wants its answer in -> one rule of a grammar, whatever the parameter is called."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import orjson

from engine.constraints.rules import choice_rule, json_object_rule, json_schema_rule, lark_grammar, regex_rule
from engine.errors import RequestError
from server.fields.generation import GenerationBody
from server.fields.output import JsonObjectFormat, JsonSchemaFormat, ResponseFormat, StructuredOutputs

Build = Callable[[], str]


def output_rule(body: GenerationBody) -> tuple[str, str] | None:
    """The rule and the parameter that asks for it; raises RequestError for two of them, and for what cannot be done."""
    asked = list(_asked(body))
    if not asked:
        return None
    if len(asked) > 1:
        first, second = asked[0][0], asked[1][0]
        raise RequestError(f"{second}: the form of the answer is set by '{first}' already; send one.", param=second)
    param, build = asked[0]
    return build(), param


def _asked(body: GenerationBody) -> Iterator[tuple[str, Build]]:
    if body.response_format is not None:
        yield from _of_response_format(body.response_format)
    if body.structured_outputs is not None:
        yield from _of_structured_outputs(body.structured_outputs)
    for param, schema in (("guided_json", body.guided_json), ("json_schema", body.json_schema)):
        if schema is not None:
            yield param, partial(_schema, schema, param)
    for param, pattern in (("guided_regex", body.guided_regex), ("regex", body.regex)):
        if pattern is not None:
            yield param, partial(regex_rule, pattern, param=param)
    if body.guided_choice is not None:
        yield "guided_choice", partial(choice_rule, body.guided_choice, param="guided_choice")
    grammars = (("guided_grammar", body.guided_grammar), ("grammar", body.grammar), ("ebnf", body.ebnf))
    for param, grammar in grammars:
        if grammar is not None:
            yield param, partial(lark_grammar, grammar, param=param)


def _of_response_format(wanted: ResponseFormat) -> Iterator[tuple[str, Build]]:
    match wanted:
        case JsonSchemaFormat(json_schema=named) if named is not None:
            path = "response_format.json_schema.schema"
            yield path, partial(json_schema_rule, named.schema_, param=path)
        case JsonSchemaFormat(schema_=schema) | JsonObjectFormat(schema_=schema) if schema is not None:
            yield "response_format.schema", partial(json_schema_rule, schema, param="response_format.schema")
        case JsonObjectFormat():
            yield "response_format", json_object_rule


def _of_structured_outputs(wanted: StructuredOutputs) -> Iterator[tuple[str, Build]]:
    path = "structured_outputs"
    if wanted.json_ is not None:
        yield f"{path}.json", partial(_schema, wanted.json_, f"{path}.json")
    if wanted.json_object:
        yield f"{path}.json_object", json_object_rule
    if wanted.regex is not None:
        yield f"{path}.regex", partial(regex_rule, wanted.regex, param=f"{path}.regex")
    if wanted.choice is not None:
        yield f"{path}.choice", partial(choice_rule, wanted.choice, param=f"{path}.choice")
    if wanted.grammar is not None:
        yield f"{path}.grammar", partial(lark_grammar, wanted.grammar, param=f"{path}.grammar")


def _schema(schema: dict[str, Any] | bool | str, param: str) -> str:
    """A schema, which some APIs take as its JSON text too."""
    if not isinstance(schema, str):
        return json_schema_rule(schema, param=param)
    try:
        return json_schema_rule(orjson.loads(schema), param=param)
    except orjson.JSONDecodeError:
        raise RequestError(f"{param}: this is not the JSON text of a schema.", param=param) from None
