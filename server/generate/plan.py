"""From a request's body to a plan: the prompt, the engine's requests, and what the answer may be.

Blocking, and run in a thread. The form of an answer becomes one rule of a grammar, whatever the parameter is called.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from engine.api.constraint import Constraint
from engine.api.prompt import Prompt
from engine.errors import RequestError
from engine.text.constraints.rules import choice_rule, json_object_rule, json_schema_rule, lark_grammar, regex_rule
from server.fields.chat import ChatBody
from server.fields.completions import CompletionBody
from server.fields.generation import (
    GenerationBody,
    JsonObjectFormat,
    JsonSchemaFormat,
    ResponseFormat,
    StructuredOutputs,
)
from server.generate.answer import Context, Plan
from server.generate.prompts import ChatPrompt, chat_prompt, checked_chat_length, checked_length, prompt_spans
from server.generate.sampling import common_request, requests_for
from server.generate.tool_constraint import tool_constraint
from server.served import ServedModel
from server.settings import ServingOptions

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


def chat_plan(body: ChatBody, context: Context) -> Plan:
    """Render, tokenize and constrain a chat; raises RequestError for what cannot be done."""
    model = context.model
    _check_choices(body, context.options)
    prompt = chat_prompt(body, model, context.options.default_template_kwargs)
    tokens = checked_chat_length(body, prompt.tokens, model)
    inside = model.format.opens_thinking(prompt.text)
    constraint, freed = _chat_constraint(body, prompt, model, inside)
    request = replace(
        common_request(body, model, context.id),
        caller=context.caller_bytes,
        constraint=constraint,
        thinking=model.format.thinking_plan(inside=inside, budget=prompt.thinking.budget),
        marks=model.format.marks,
        prediction=_prediction(body, model),
    )
    formed = output_rule(body) is not None
    new_parser = partial(model.format.parser, inside_thinking=inside, tools=prompt.tools.callable, formed=formed)
    spans = prompt_spans(body, prompt, model) if body.cache_report else ()
    requests = requests_for(request, [tokens], body)
    notes = (*prompt.notes, *freed)
    return Plan(id=context.id, requests=requests, n=body.n, new_parser=new_parser, notes=notes, message_spans=spans)


def _prediction(body: ChatBody, model: ServedModel) -> tuple[int, ...]:
    """The tokens of the predicted text, as far as an answer could have them."""
    if body.prediction is None:
        return ()
    return tuple(model.tokenizer.encode(body.prediction.text)[: model.context_length])


def _chat_constraint(
    body: ChatBody, prompt: ChatPrompt, model: ServedModel, inside: bool
) -> tuple[Constraint | None, tuple[str, ...]]:
    """What limits the answer, and the paths of what it leaves out of tools' schemas."""
    form = output_rule(body)
    rule, param = form or (None, "tools")
    if prompt.tools.offered and (rule is None or prompt.tools.callable):
        return tool_constraint(prompt.tools, model, inside_thinking=inside, rule=rule, param=param)
    if rule is None:
        return None, ()
    return model.constraints.compile(model.format.answer_grammar(rule, inside_thinking=inside), param=param), ()


def completion_plan(body: CompletionBody, context: Context) -> Plan:
    """Tokenize raw prompts, or check the token ids given; raises RequestError for what cannot be done."""
    model = context.model
    _check_choices(body, context.options)
    prompts = [_prompt_tokens(body, model, path, prompt) for path, prompt in body.prompts]
    rule = output_rule(body)
    constraint = None if rule is None else model.constraints.compile(f"start: {rule[0]}", param=rule[1])
    scores_prompt = body.echo and (body.logprobs is not None or body.max_tokens == 0)
    request = replace(
        common_request(body, model, context.id),
        caller=context.caller_bytes,
        prompt_logprobs=(body.logprobs or 0) if scores_prompt else None,
        constraint=constraint,
    )
    requests = requests_for(request, prompts, body)
    echo = tuple(_text(prompt, model) for _, prompt in body.prompts) if body.echo else ()
    return Plan(id=context.id, requests=requests, n=body.n, echo=echo)


def _check_choices(body: GenerationBody, options: ServingOptions) -> None:
    if body.n > options.max_n:
        raise RequestError(
            f"n: this server gives at most {options.max_n} answers to a request (got {body.n}).",
            param="n",
            code="integer_above_max_value",
        )


def _prompt_tokens(body: CompletionBody, model: ServedModel, path: str, prompt: str | list[int]) -> Prompt:
    tokens = _encoded(prompt, body, model) if isinstance(prompt, str) else checked_ids(prompt, model.vocab_size, path)
    return checked_length(_with_suffix(tokens, body, model) if body.suffix else tokens, model, path)


def _encoded(prompt: str, body: CompletionBody, model: ServedModel) -> list[int]:
    if body.add_special_tokens:
        return model.tokenizer.encode_prompt(prompt)
    return model.tokenizer.encode(prompt, parse_special=True)


def _with_suffix(tokens: list[int], body: CompletionBody, model: ServedModel) -> list[int]:
    """The prompt for the text between two others: both after tokens that say which is which."""
    infill = model.tokenizer.infill_ids
    if infill is None:
        raise RequestError(
            f"suffix: the model '{model.id}' has no tokens for infilling; leave it out or use another model.",
            param="suffix",
            code="unsupported_parameter",
        )
    suffix = model.tokenizer.encode(body.suffix)
    bos = tokens[:1] if tokens[:1] == [model.tokenizer.bos_id] else []
    return [*bos, infill.prefix, *tokens[len(bos) :], infill.suffix, *suffix, infill.middle]


def checked_ids(prompt: list[int], vocab_size: int, path: str) -> list[int]:
    for index, token in enumerate(prompt):
        if token >= vocab_size:
            param = f"{path}[{index}]"
            raise RequestError(f"{param}: token id {token} is not in the vocabulary of {vocab_size}.", param=param)
    return prompt


def _text(prompt: str | Sequence[int], model: ServedModel) -> str:
    """A prompt as its echo shows it."""
    if isinstance(prompt, str):
        return prompt
    return b"".join(map(model.tokenizer.token_bytes, prompt)).decode(errors="replace")
