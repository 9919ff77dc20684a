"""A Responses request as a chat completion: items become messages, and what one turn said becomes one message."""

from collections.abc import Mapping, Sequence

from engine.errors import RequestError
from server.api.responses.body import (
    AllowedFunctions,
    AnyItem,
    FunctionCall,
    FunctionCallOutput,
    FunctionChoice,
    InputBody,
    MessageItem,
    PlainChoice,
    ReasoningItem,
    ResponsesBody,
    SchemaFormat,
)
from server.generate.answer import Json
from server.generate.chat_form import ChatForm, given

NAMES = [
    ("response_format.json_schema", "text.format"),
    ("response_format", "text.format"),
    ("reasoning_effort", "reasoning.effort"),
    ("max_completion_tokens", "max_output_tokens"),
    ("tool_choice.function.name", "tool_choice.name"),
    ("tool_choice.allowed_tools", "tool_choice"),
]


def response_form(body: ResponsesBody, earlier: Sequence[AnyItem]) -> ChatForm:
    """The chat to complete; `earlier` is what came before this request's own input."""
    prompt = input_form(body, body.model, earlier)
    limit = given(max_completion_tokens=body.max_output_tokens)
    logprobs = {"logprobs": True, "top_logprobs": body.top_logprobs} if body.wants_logprobs else {}
    return ChatForm({**prompt.body, **body.stated_sampling, **limit, **logprobs, **body.stated_priority}, prompt.names)


def input_form(body: InputBody, model: str, earlier: Sequence[AnyItem]) -> ChatForm:
    """The part of the chat that the prompt is made of."""
    turns = Turns()
    if body.instructions is not None:
        turns.say("system", body.instructions, "instructions")
    for item in earlier:
        turns.add(item, "previous_response_id")
    for index, item in enumerate(body.input):
        turns.add(item, f"input[{index}]")
    form = {"model": model, "messages": turns.messages, **_tools(body), **_format(body)}
    form |= given(reasoning_effort=body.reasoning.effort)
    if body.chat_template_kwargs:
        form["chat_template_kwargs"] = body.chat_template_kwargs
    return ChatForm(form, [*turns.names, *_tool_names(body), *NAMES])


def _tool_names(body: InputBody) -> list[tuple[str, str]]:
    allowed = body.tool_choice.tools if isinstance(body.tool_choice, AllowedFunctions) else []
    return [
        *((f"tools[{place}].function", f"tools[{place}]") for place in range(len(body.tools))),
        *(
            (f"tool_choice.allowed_tools.tools[{place}].function", f"tool_choice.tools[{place}]")
            for place in range(len(allowed))
        ),
    ]


class Turns:
    """The messages of a chat, as they grow item by item."""

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self.names: list[tuple[str, str]] = [("messages", "input")]
        self._call_ids: set[str] = set()

    def say(self, role: str, text: str, path: str) -> None:
        self._append({"role": role, "content": [{"type": "text", "text": text}]}, path)

    def add(self, item: AnyItem, path: str) -> None:
        match item:
            case MessageItem(role="assistant"):
                self._assistant(path, "content", "tool_calls")["content"] = _texts(item)
            case MessageItem():
                self._append({"role": item.role, "content": _texts(item)}, path)
            case ReasoningItem():
                self._reason(item, path)
            case FunctionCall():
                self._call_ids.add(item.call_id)
                self._assistant(path).setdefault("tool_calls", []).append(_call(item))
            case FunctionCallOutput():
                self._result(item, path)

    def _append(self, message: Json, path: str) -> Json:
        self.names.append((f"messages[{len(self.messages)}]", path))
        self.messages.append(message)
        return message

    def _assistant(self, path: str, *full: str) -> Json:
        """The assistant's turn that an item belongs to: the last message, unless it has what may not come before."""
        last = self.messages[-1] if self.messages else {}
        if last.get("role") == "assistant" and not any(key in last for key in full):
            return last
        return self._append({"role": "assistant"}, path)

    def _reason(self, item: ReasoningItem, path: str) -> None:
        text = "\n".join(part.text for part in item.content or item.summary)
        if text:
            turn = self._assistant(path, "content", "tool_calls", "reasoning_content")
            turn["reasoning_content"] = text

    def _result(self, item: FunctionCallOutput, path: str) -> None:
        if item.call_id not in self._call_ids:
            param = f"{path}.call_id"
            raise RequestError(f"{param}: no earlier function_call has this call_id.", param=param)
        self._append({"role": "tool", "tool_call_id": item.call_id, "content": _texts(item)}, path)


def _texts(item: MessageItem | FunctionCallOutput) -> list[Json]:
    parts = item.content if isinstance(item, MessageItem) else item.output
    return [{"type": "text", "text": part.text} for part in parts]


def _call(item: FunctionCall) -> Json:
    return {"id": item.call_id, "type": "function", "function": {"name": item.name, "arguments": item.arguments}}


def _tools(body: InputBody) -> Mapping[str, object]:
    if not body.tools:
        return {} if body.tool_choice == PlainChoice(type="auto") else {"tool_choice": _choice(body)}
    tools = [{"type": "function", "function": _function(tool.model_dump(exclude={"type"}))} for tool in body.tools]
    return {"tools": tools, "tool_choice": _choice(body), "parallel_tool_calls": body.parallel_tool_calls}


def _function(fields: Json) -> Json:
    return dict(given(**fields))


def _choice(body: InputBody) -> object:
    match body.tool_choice:
        case PlainChoice(type=mode):
            return mode
        case FunctionChoice():
            return _named(body.tool_choice)
        case AllowedFunctions(mode=mode, tools=tools):
            allowed = {"mode": mode, "tools": [_named(tool) for tool in tools]}
            return {"type": "allowed_tools", "allowed_tools": allowed}


def _named(choice: FunctionChoice) -> Json:
    return {"type": "function", "function": {"name": choice.name}}


def _format(body: InputBody) -> Mapping[str, object]:
    wanted = body.text.format
    if isinstance(wanted, SchemaFormat):
        schema = given(name=wanted.name, schema=wanted.schema_, description=wanted.description, strict=wanted.strict)
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    return {"response_format": {"type": wanted.type}} if wanted.type != "text" else {}
