"""A Messages request as a chat completion: every block has its place there."""

import json
from collections.abc import Iterable, Mapping, Sequence

from engine.errors import RequestError
from server.api.messages.body import (
    AnyChoice,
    AssistantTurn,
    AutoChoice,
    Message,
    MessagesBody,
    NamedChoice,
    NoChoice,
    PromptBody,
    SystemTurn,
    TextBlock,
    ThinkingBlock,
    ThinkingOff,
    ThinkingOn,
    ToolResultBlock,
    ToolUseBlock,
    UserTurn,
)
from server.generate.answer import Json
from server.generate.chat_form import ChatForm, given

NAMES = [
    ("max_completion_tokens", "max_tokens"),
    ("stop", "stop_sequences"),
    ("continue_final_message", "messages"),
    ("tool_choice.function.name", "tool_choice.name"),
    ("parallel_tool_calls", "tool_choice.disable_parallel_tool_use"),
    ("enable_thinking", "thinking"),
    ("thinking_token_budget", "thinking.budget_tokens"),
    ("reasoning_effort", "output_config.effort"),
    ("response_format.json_schema", "output_config.format"),
]
ERROR_MARK = "Error: "  # chats have no flag for a tool's failure: the model has to read it


def messages_form(body: MessagesBody) -> ChatForm:
    """The chat to complete."""
    prompt = prompt_form(body)
    stop = given(stop=body.stop_sequences or None)
    own = {**stop, **body.stated_sampling, **body.stated_priority, "max_completion_tokens": body.max_tokens}
    return ChatForm({**prompt.body, **own}, prompt.names)


def prompt_form(body: PromptBody) -> ChatForm:
    """The part of the chat that the prompt is made of."""
    turns = [("system", {"role": "system", "content": _texts(body.system)})] if body.system else []
    call_ids: set[str] = set()
    for index, message in enumerate(body.messages):
        path = f"messages[{index}]"
        turns += [(path, plain) for plain in _plain(message, path, call_ids)]
    messages = [plain for _, plain in turns]
    form = {"model": body.model, "messages": messages, **_tools(body), **_thinking(body), **_output(body)}
    if body.chat_template_kwargs:
        form["chat_template_kwargs"] = body.chat_template_kwargs
    if _is_begun(body.messages[-1]):
        form |= {"continue_final_message": True, "add_generation_prompt": False}
    system = [("messages[0].content", "system")] if body.system else []
    return ChatForm(form, [*NAMES, *system, *_message_names(turns), *_tool_names(body)])


def _message_names(turns: Sequence[tuple[str, Json]]) -> list[tuple[str, str]]:
    return [(f"messages[{place}]", path) for place, (path, _) in enumerate(turns)]


def _tool_names(body: PromptBody) -> list[tuple[str, str]]:
    paths = [f"tools[{place}]" for place in range(len(body.tools))]
    schemas = [(f"{path}.function.parameters", f"{path}.input_schema") for path in paths]
    return [(f"{path}.function", path) for path in paths] + schemas


def _is_begun(last: Message) -> bool:
    """Whether the answer is to go on from the assistant's own last words, which is how this API prefills."""
    return (
        isinstance(last, AssistantTurn)
        and any(isinstance(block, TextBlock) and block.text for block in last.content)
        and not any(isinstance(block, ToolUseBlock) for block in last.content)
    )


def _plain(message: Message, path: str, call_ids: set[str]) -> Iterable[Json]:
    match message:
        case SystemTurn():
            return [{"role": "system", "content": _texts(message.content)}]
        case UserTurn():
            return _user(message, path, call_ids)
        case AssistantTurn():
            return [_assistant(message, call_ids)]


def _user(message: UserTurn, path: str, call_ids: set[str]) -> list[Json]:
    """Results of tools are messages of their own in a chat; the text between them stays where it is."""
    plain: list[Json] = []
    for index, block in enumerate(message.content):
        if isinstance(block, ToolResultBlock):
            plain.append(_tool_result(block, f"{path}.content[{index}]", call_ids))
        elif plain and plain[-1]["role"] == "user":
            plain[-1]["content"].append({"type": "text", "text": block.text})
        else:
            plain.append({"role": "user", "content": _texts([block])})
    return plain or [{"role": "user", "content": []}]


def _tool_result(block: ToolResultBlock, path: str, call_ids: set[str]) -> Json:
    if block.tool_use_id not in call_ids:
        param = f"{path}.tool_use_id"
        raise RequestError(f"{param}: no earlier assistant message has a tool_use block of this id.", param=param)
    content = _texts(block.content)
    if block.is_error:
        first = content[0]["text"] if content else ""
        content = [{"type": "text", "text": ERROR_MARK + first}, *content[1:]]
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}


def _assistant(message: AssistantTurn, call_ids: set[str]) -> Json:
    plain: Json = {"role": "assistant"}
    texts = [block for block in message.content if isinstance(block, TextBlock)]
    thoughts = [block.thinking for block in message.content if isinstance(block, ThinkingBlock)]
    calls = [block for block in message.content if isinstance(block, ToolUseBlock)]
    if texts or not calls:
        plain["content"] = _texts(texts)
    if thoughts:
        plain["reasoning_content"] = "\n".join(thoughts)
    if calls:
        plain["tool_calls"] = [_call(block) for block in calls]
        call_ids.update(block.id for block in calls)
    return plain


def _call(block: ToolUseBlock) -> Json:
    arguments = json.dumps(block.input, ensure_ascii=False)
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}}


def _texts(blocks: Iterable[TextBlock]) -> list[Json]:
    return [{"type": "text", "text": block.text} for block in blocks]


def _tools(body: PromptBody) -> Mapping[str, object]:
    if not body.tools:
        return _tool_choice(body)
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.input_schema,
                "strict": tool.strict,
            },
        }
        for tool in body.tools
    ]
    return {"tools": tools, **_tool_choice(body)}


def _tool_choice(body: PromptBody) -> Mapping[str, object]:
    match body.tool_choice:
        case AutoChoice(disable_parallel_tool_use=alone):
            return {"tool_choice": "auto", "parallel_tool_calls": not alone}
        case AnyChoice(disable_parallel_tool_use=alone):
            return {"tool_choice": "required", "parallel_tool_calls": not alone}
        case NamedChoice(name=name, disable_parallel_tool_use=alone):
            choice = {"type": "function", "function": {"name": name}}
            return {"tool_choice": choice, "parallel_tool_calls": not alone}
        case NoChoice():
            return {"tool_choice": "none"}
        case None:
            return {}


def _thinking(body: PromptBody) -> Mapping[str, object]:
    """Where nothing is said, the model does as its template has it."""
    match body.thinking:
        case ThinkingOn(budget_tokens=budget):
            return {"enable_thinking": True, "thinking_token_budget": budget}
        case ThinkingOff():
            return {"enable_thinking": False}
        case None:
            return {}
        case _:
            return {"enable_thinking": True}


def _output(body: PromptBody) -> Mapping[str, object]:
    config = body.output_config
    if config is None:
        return {}
    shape = None
    if config.format is not None:
        schema = {"name": "output", "schema": config.format.schema_, "strict": True}
        shape = {"type": "json_schema", "json_schema": schema}
    return given(reasoning_effort=config.effort, response_format=shape)
