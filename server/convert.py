"""Protocol request -> engine Request: messages, template, tokens, limits. Pure, and run in a thread."""

from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import ContextLengthError, RequestError, TemplateError
from engine.request import Request, SamplingParams
from server.errors import clip
from server.protocol.chat import AssistantMessage, ChatBody, Message, ToolMessage
from server.protocol.common import GenerationBody
from server.protocol.completions import CompletionBody
from server.served import ChatTemplate, ServedModel

# Arguments of the renderer itself, here and in other renderers: a request may not set them by way of the template's.
RENDERER_ARGUMENTS = frozenset(
    {
        *("self", "extra", "messages", "conversation", "tools", "documents", "template", "chat_template"),
        *("add_generation_prompt", "continue_final_message", "tokenize", "tokenizer", "tokenizer_kwargs"),
        *("padding", "truncation", "max_length", "return_tensors", "return_dict", "return_assistant_tokens_mask"),
        *("bos_token", "eos_token", "raise_exception", "strftime_now"),
    }
)

PlainMessage = dict[str, object]


def chat_request(body: ChatBody, model: ServedModel, request_id: str) -> Request:
    """Render and tokenize a chat; raises RequestError for what cannot be done."""
    if model.template is None:
        raise RequestError(f"The model '{model.id}' has no chat template; use POST /v1/completions.", param="messages")
    extra = _template_arguments(body.chat_template_kwargs)
    rendered = _render(model.template, plain_messages(body.messages), extra)
    prompt = model.tokenizer.encode_rendered(rendered)
    return _request(body, request_id, _checked_prompt(prompt, model, "messages"), body.token_limit)


def completion_request(body: CompletionBody, model: ServedModel, request_id: str) -> Request:
    """Tokenize a raw prompt, or check the token ids given; raises RequestError for what cannot be done."""
    if isinstance(body.prompt, str):
        prompt = model.tokenizer.encode_prompt(body.prompt)
    else:
        prompt = _checked_ids(body.prompt, model.vocab_size)
    return _request(body, request_id, _checked_prompt(prompt, model, "prompt"), body.max_tokens)


def _request(body: GenerationBody, request_id: str, prompt: list[int], max_tokens: int | None) -> Request:
    sampling = SamplingParams(
        temperature=body.temperature,
        top_k=max(body.top_k, 0),
        top_p=body.top_p,
        min_p=body.min_p,
        seed=body.seed,
    )
    return Request(
        id=request_id,
        prompt=tuple(prompt),
        max_tokens=max_tokens,
        sampling=sampling,
        stop=tuple(body.stop),
        ignore_eos=body.ignore_eos,
    )


def _checked_ids(prompt: list[int], vocab_size: int) -> list[int]:
    for index, token in enumerate(prompt):
        if token >= vocab_size:
            raise RequestError(
                f"prompt[{index}]: token id {token} is not in the vocabulary of {vocab_size}.", param=f"prompt[{index}]"
            )
    return prompt


def _checked_prompt(prompt: list[int], model: ServedModel, param: str) -> list[int]:
    if not prompt:
        raise RequestError(f"{param}: the prompt is empty; send at least one token.", param=param)
    if len(prompt) >= model.context_length:
        raise ContextLengthError(len(prompt), model.context_length, param=param)
    return prompt


def _template_arguments(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in arguments:
        if name in RENDERER_ARGUMENTS or not name.isidentifier() or name.startswith("_"):
            param = f"chat_template_kwargs.{clip(name, 64)}"
            raise RequestError(f"{param}: not a name that a request may give to the chat template.", param=param)
    return arguments


def _render(template: ChatTemplate, messages: list[PlainMessage], extra: Mapping[str, Any]) -> Any:
    try:
        return template.render(messages, add_generation_prompt=True, extra=extra)
    except TemplateError as error:
        raise RequestError(str(error), param=error.param or "messages", code=error.code) from error


def plain_messages(messages: Sequence[Message]) -> list[PlainMessage]:
    """Messages as plain data with text content; what templates need beyond that is the template's affair."""
    call_ids: set[str] = set()
    return [_plain_message(message, f"messages[{index}]", call_ids) for index, message in enumerate(messages)]


def _plain_message(message: Message, path: str, call_ids: set[str]) -> PlainMessage:
    # Parts are joined by line breaks, as other servers do.
    plain: PlainMessage = {"role": message.role, "content": "\n".join(part.text for part in message.content)}
    if message.name is not None:
        plain["name"] = message.name
    match message:
        case AssistantMessage():
            plain |= _assistant_extras(message)
            call_ids.update(call.id for call in message.tool_calls)
        case ToolMessage():
            _check_call_id(message, path, call_ids)
            plain["tool_call_id"] = message.tool_call_id
    return plain


def _assistant_extras(message: AssistantMessage) -> PlainMessage:
    extras: PlainMessage = {"content": message.refusal} if message.refusal and not message.content else {}
    reasoning = message.reasoning_content or message.reasoning
    if reasoning:
        extras |= {"reasoning_content": reasoning, "reasoning": reasoning}
    if message.tool_calls:
        extras["tool_calls"] = [
            {
                "id": call.id,
                "type": call.type,
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in message.tool_calls
        ]
    return extras


def _check_call_id(message: ToolMessage, path: str, call_ids: set[str]) -> None:
    if message.name is None and message.tool_call_id not in call_ids:
        param = f"{path}.tool_call_id"
        raise RequestError(f"{param}: no earlier assistant message has a tool call of this id.", param=param)
