"""Protocol bodies -> plans for the engine: prompt, limits, grammar, parser. Blocking, and run in a thread."""

from collections.abc import Sequence
from functools import partial

from engine.errors import RequestError
from engine.sampling.constraint import Constraint
from server.api.chat.body import ChatBody
from server.api.completions.body import CompletionBody
from server.fields.generation import GenerationBody
from server.generate.answer import Plan
from server.generate.context_guard import checked_chat_length
from server.generate.output_rules import output_rule
from server.generate.prompts import ChatPrompt, chat_prompt, checked_length, prompt_spans
from server.generate.sampling import requests_for
from server.served import ServedModel
from server.serving import ServingOptions


def chat_plan(body: ChatBody, model: ServedModel, request_id: str, options: ServingOptions) -> Plan:
    """Render, tokenize and constrain a chat; raises RequestError for what cannot be done."""
    _check_choices(body, options)
    prompt = chat_prompt(body, model, options.default_template_kwargs)
    tokens = checked_chat_length(body, prompt.tokens, model)
    inside = model.format.opens_thinking(prompt.text)
    requests = requests_for(
        body,
        model,
        request_id,
        [tokens],
        constraint=_chat_constraint(body, prompt, model, inside),
        thinking=model.format.thinking_plan(inside=inside, budget=prompt.wish.budget),
        marks=model.format.marks,
        prediction=_prediction(body, model),
    )
    callable_tools = prompt.offer.tools if prompt.offer.choice.mode != "none" else None
    new_parser = partial(model.format.parser, inside_thinking=inside, tools=callable_tools)
    spans = prompt_spans(body, prompt, model) if body.cache_report else ()
    return Plan(
        id=request_id, requests=requests, n=body.n, new_parser=new_parser, notes=prompt.notes, message_spans=spans
    )


def _prediction(body: ChatBody, model: ServedModel) -> tuple[int, ...]:
    """The tokens of the predicted text, as far as an answer could have them."""
    if body.prediction is None:
        return ()
    return tuple(model.tokenizer.encode(body.prediction.text)[: model.context_length])


def _chat_constraint(body: ChatBody, prompt: ChatPrompt, model: ServedModel, inside: bool) -> Constraint | None:
    offer = prompt.offer
    if offer.tools and model.format.tools is None:
        raise RequestError(
            f"tools: the chat template of '{model.id}' has no place for tools; leave them out or use another model.",
            param="tools",
            code="unsupported_value",
        )
    rule = output_rule(body)
    if rule is not None:
        if offer.tools and offer.choice.mode != "none":
            raise RequestError(
                f"{rule[1]}: an answer that has a fixed form cannot call tools; send 'tool_choice': \"none\".",
                param=rule[1],
                code="unsupported_value",
            )
        return model.constraints.compile(model.format.answer_grammar(rule[0], inside_thinking=inside), param=rule[1])
    if not offer.tools:
        return None
    grammar = model.format.tool_grammar(offer.tools, offer.choice, parallel=offer.parallel, inside_thinking=inside)
    return None if grammar is None else model.constraints.compile(grammar, param="tools")


def completion_plan(body: CompletionBody, model: ServedModel, request_id: str, options: ServingOptions) -> Plan:
    """Tokenize raw prompts, or check the token ids given; raises RequestError for what cannot be done."""
    _check_choices(body, options)
    prompts = [_prompt_tokens(body, model, path, prompt) for path, prompt in body.prompts]
    rule = output_rule(body)
    constraint = None if rule is None else model.constraints.compile(f"start: {rule[0]}", param=rule[1])
    scores_prompt = body.echo and (body.logprobs is not None or body.max_tokens == 0)
    requests = requests_for(
        body,
        model,
        request_id,
        prompts,
        prompt_logprobs=(body.logprobs or 0) if scores_prompt else None,
        constraint=constraint,
    )
    echo = tuple(_text(prompt, model) for _, prompt in body.prompts) if body.echo else ()
    return Plan(id=request_id, requests=requests, n=body.n, echo=echo)


def _check_choices(body: GenerationBody, options: ServingOptions) -> None:
    if body.n > options.max_n:
        raise RequestError(
            f"n: this server gives at most {options.max_n} answers to a request (got {body.n}).",
            param="n",
            code="integer_above_max_value",
        )


def _prompt_tokens(body: CompletionBody, model: ServedModel, path: str, prompt: str | list[int]) -> tuple[int, ...]:
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
