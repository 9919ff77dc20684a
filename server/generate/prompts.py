"""A chat's messages -> the model's prompt: plain messages, the template's arguments, text, tokens.

Of a chat that does not fit the context, the message with the most tokens is named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.api.prompt import Prompt
from engine.errors import ContextLengthError, RequestError, TemplateError
from engine.text.formats.detection import template_variables
from engine.text.formats.words import declarations, in_words, instructions
from engine.text.tokenizer import RenderedChat, Tokenizer
from server.errors import clip
from server.fields.chat import (
    AssistantMessage,
    CalledFunction,
    ChatBody,
    FunctionMessage,
    InstructionMessage,
    Message,
    ToolMessage,
)
from server.generate.chat_tools import ToolOptions, tool_options
from server.generate.message_spans import Spans, marked_messages, message_spans
from server.generate.telemetry import instruction_text, telemetry_places
from server.generate.thinking import ThinkingOptions, thinking_options
from server.served import ServedModel

# Arguments of the renderer itself, here and in other renderers: a request may not set them by way of the template's.
RENDERER_ARGUMENTS = frozenset(
    {
        *("self", "extra", "messages", "conversation", "tools", "documents", "template", "chat_template"),
        *("add_generation_prompt", "continue_final_message", "tokenize", "tokenizer", "tokenizer_kwargs"),
        *("padding", "truncation", "max_length", "return_tensors", "return_dict", "return_assistant_tokens_mask"),
        *("bos_token", "eos_token", "raise_exception", "strftime_now"),
    }
)
END_OF_MESSAGE = "\U0010fffd\U0010fffc"  # private characters, which no template trims and no token begins with

PlainMessage = dict[str, object]


@dataclass(frozen=True, slots=True)
class MessageSize:
    """How many tokens one message of a chat has, of its own text, without what the template writes around it."""

    index: int
    role: str
    tokens: int


class ChatLengthError(ContextLengthError):
    """A chat fills the context by itself; the message with the most tokens is the one to shorten."""

    def __init__(self, prompt_tokens: int, context_length: int, *, param: str, biggest: MessageSize, path: str) -> None:
        """`param` and `path` of the biggest message are places in the body of the API that was called."""
        super().__init__(prompt_tokens, context_length, param=param)
        self.biggest = biggest
        self.path = path

    def __str__(self) -> str:
        hint = f"the biggest message is {self.path} ({self.biggest.role}) with {self.biggest.tokens} tokens"
        return f"{super().__str__().rstrip('.')}; {hint}."


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A chat as its model reads it."""

    rendered: RenderedChat
    tokens: tuple[int, ...]
    tools: ToolOptions
    thinking: ThinkingOptions
    left_out: tuple[str, ...] = ()  # paths in the chat's body

    @property
    def text(self) -> str:
        return self.rendered.text

    @property
    def notes(self) -> tuple[str, ...]:
        """Names of parameters that had no effect."""
        return (*self.tools.notes, *self.thinking.notes, *self.left_out)


def chat_prompt(body: ChatBody, model: ServedModel, defaults: Mapping[str, object]) -> ChatPrompt:
    """Render and tokenize a chat of any length; raises RequestError for what cannot be done."""
    if model.template is None:
        raise RequestError(
            f"The model '{model.id}' has no chat template; start the server with --chat-template, or use POST"
            " /v1/completions.",
            param="messages",
        )
    _check_template_arguments(body.chat_template_kwargs)
    tools = tool_options(body)
    thinking = thinking_options(body, defaults, model.template.source, thinks=model.format.thinking is not None)
    rendered = _render(model, body, tools, thinking)
    tokens = tuple(model.tokenizer.encode_rendered(rendered))
    return ChatPrompt(rendered, tokens, tools, thinking, telemetry_places(body.messages))


def prompt_spans(body: ChatBody, prompt: ChatPrompt, model: ServedModel) -> Spans:
    """Which of its tokens are which message's; nothing where the template will not say."""
    try:
        marked = _render(model, body, prompt.tools, prompt.thinking, with_marks=True)
    except RequestError:
        return ()
    return message_spans(marked.text, prompt.text, prompt.tokens, model.tokenizer)


def checked_length(prompt: Sequence[int], model: ServedModel, param: str) -> Prompt:
    """The prompt, if it leaves room for an answer."""
    if not prompt:
        raise RequestError(f"{param}: the prompt is empty; send at least one token.", param=param)
    if len(prompt) >= model.context_length:
        raise ContextLengthError(len(prompt), model.context_length, param=param)
    return Prompt(tuple(prompt))


def _check_template_arguments(arguments: Mapping[str, object]) -> None:
    for name in arguments:
        if name in RENDERER_ARGUMENTS or not name.isidentifier() or name.startswith("_"):
            param = f"chat_template_kwargs.{clip(name, 64)}"
            raise RequestError(f"{param}: not a name that a request may give to the chat template.", param=param)


def _render(
    model: ServedModel, body: ChatBody, tools: ToolOptions, thinking: ThinkingOptions, *, with_marks: bool = False
) -> RenderedChat:
    template = model.template
    assert template is not None
    messages = plain_messages(body.messages)
    if model.format.tools_in_words and "tool_calls" not in template.source:
        messages = [in_words(message) for message in messages]
    if with_marks:
        messages = marked_messages(messages)
    if tools.offered and "tools" not in template_variables(template.source):
        told = instructions if model.format.tools_in_words else declarations
        messages = _with_system_text(messages, told(tools.offered))
    if body.continue_final_message:
        messages[-1]["content"] = f"{messages[-1]['content']}{END_OF_MESSAGE}"
    opens_answer = not body.continue_final_message and body.add_generation_prompt is not False
    try:
        rendered = template.render(
            messages, tools=tools.for_template, add_generation_prompt=opens_answer, extra=thinking.arguments
        )
    except TemplateError as error:
        raise RequestError(clip(str(error), 400), param=error.param or "messages", code=error.code) from error
    return _cut(rendered) if body.continue_final_message else rendered


def _with_system_text(messages: list[PlainMessage], text: str) -> list[PlainMessage]:
    """The chat with a text at the end of its first instructions."""
    first, *rest = messages
    if first["role"] in ("system", "developer"):
        return [first | {"content": f"{first['content']}\n\n{text}".lstrip()}, *rest]
    return [{"role": "system", "content": text}, *messages]


def _cut(rendered: RenderedChat) -> RenderedChat:
    """The chat up to the end of its last message's text, for the model to go on from there."""
    end = rendered.guarded.rfind(END_OF_MESSAGE)
    if end < 0:
        param = "continue_final_message"
        raise RequestError(
            f"{param}: this model's chat template changes the last message; send a new one.", param=param
        )
    return RenderedChat(rendered.guarded[:end], rendered.guard)


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
        case InstructionMessage():
            plain["content"] = instruction_text(message.content)
        case AssistantMessage():
            plain |= _assistant_extras(message)
            call_ids.update(call.id for call in message.tool_calls)
        case ToolMessage():
            _check_call_id(message, path, call_ids)
            plain["tool_call_id"] = message.tool_call_id
        case FunctionMessage():
            plain["role"] = "tool"
    return plain


def _assistant_extras(message: AssistantMessage) -> PlainMessage:
    extras: PlainMessage = {"content": message.refusal} if message.refusal and not message.content else {}
    reasoning = message.reasoning_content or message.reasoning
    if reasoning:
        extras |= {"reasoning_content": reasoning, "reasoning": reasoning}
    calls = [_call(call.id, call.function) for call in message.tool_calls]
    if message.function_call is not None:
        calls.append(_call("call_0", message.function_call))
    return extras | {"tool_calls": calls} if calls else extras


def _call(call_id: str, function: CalledFunction) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": function.name, "arguments": function.arguments}}


def _check_call_id(message: ToolMessage, path: str, call_ids: set[str]) -> None:
    if message.name is None and message.tool_call_id not in call_ids:
        param = f"{path}.tool_call_id"
        raise RequestError(f"{param}: no earlier assistant message has a tool call of this id.", param=param)


def biggest_message(messages: Sequence[Message], tokenizer: Tokenizer) -> MessageSize:
    """The message with the most tokens; the first of several."""
    counts = [len(tokenizer.encode(_own_text(message))) for message in messages]
    index = counts.index(max(counts))
    return MessageSize(index=index, role=messages[index].role, tokens=counts[index])


def checked_chat_length(body: ChatBody, prompt: Sequence[int], model: ServedModel) -> Prompt:
    """The prompt, if it leaves room for an answer; raises ChatLengthError else. Blocking."""
    try:
        return checked_length(prompt, model, "messages")
    except ContextLengthError:
        biggest = biggest_message(body.messages, model.tokenizer)
        path = f"messages[{biggest.index}]"
        raise ChatLengthError(len(prompt), model.context_length, param="messages", biggest=biggest, path=path) from None


def _own_text(message: Message) -> str:
    texts = [part.text for part in message.content]
    if isinstance(message, AssistantMessage):
        texts += [message.reasoning_content or message.reasoning or ""]
        texts += [str(call.function.arguments) for call in message.tool_calls]
    return "\n".join(texts)
