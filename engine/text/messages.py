"""Chat messages as templates expect them: `system` for `developer`, arguments of calls as objects, names of tools."""

import json
from collections.abc import Callable, Mapping, Sequence

from engine.errors import TemplateError

Message = dict[str, object]


def for_template(messages: Sequence[Mapping[str, object]]) -> list[Message]:
    """Messages of the OpenAI shape -> messages of the shape that chat templates are written for.

    Content is a string, or null where a message has none; parts have been joined before. Keys that are null or empty
    lists are left out, since templates ask whether a key is there. Raises TemplateError.
    """
    return [_message(messages, place) for place in range(len(messages))]


def with_text_arguments(messages: Sequence[Message]) -> list[Message]:
    """The same messages for templates that write a call's arguments as text."""
    return [_with_arguments(message, _as_json) for message in messages]


def system_first(messages: Sequence[Message]) -> list[Message]:
    """All system messages as one at the front, in their order, for templates that accept them nowhere else."""
    system = [message for message in messages if message["role"] == "system"]
    rest = [message for message in messages if message["role"] != "system"]
    if not system:
        return rest
    return [system[0] | {"content": "\n\n".join(str(message["content"]) for message in system)}, *rest]


def in_turns(messages: Sequence[Message]) -> list[Message]:
    """For templates that know no system role and want turns to alternate: the system's text opens the first user turn.

    Messages of one role that follow each other become one; those of tools, and those that call them, stay as they are.
    """
    chat = system_first(messages)
    if chat and chat[0]["role"] == "system":
        chat = [chat[0] | {"role": "user"}, *chat[1:]]
    turns: list[Message] = []
    for message in chat:
        if turns and _is_same_turn(turns[-1], message):
            turns[-1] = turns[-1] | {"content": f"{turns[-1]['content']}\n\n{message['content']}"}
        else:
            turns.append(message)
    return turns


def _is_same_turn(first: Message, second: Message) -> bool:
    plain = {"role", "content"}
    return first["role"] == second["role"] and first.keys() <= plain and second.keys() <= plain


def _message(messages: Sequence[Mapping[str, object]], place: int) -> Message:
    message = {key: value for key, value in messages[place].items() if value is not None and value != []}
    message["role"] = _role(message.get("role"), place)
    message.setdefault("content", "")
    if "reasoning" in message:
        message.setdefault("reasoning_content", message["reasoning"])
    if message.get("role") == "tool" and "name" not in message:
        name = _called_name(messages[:place], message.get("tool_call_id"))
        message |= {"name": name} if name is not None else {}
    return _with_arguments(message, _parsed)


def _role(role: object, place: int) -> str:
    """Roles are part of the scaffold, so they are plain words."""
    if not isinstance(role, str) or not role.isidentifier():
        raise TemplateError("A message's role must be a word such as user.", param=f"messages[{place}].role")
    return "system" if role == "developer" else role


def _calls(message: Mapping[str, object]) -> list[Mapping[str, object]]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, Sequence) else []


def _called_name(earlier: Sequence[Mapping[str, object]], call_id: object) -> object:
    """The name of the function whose call a tool message answers."""
    for message in reversed(earlier):
        for call in _calls(message):
            function = call.get("function")
            if call.get("id") == call_id and isinstance(function, Mapping):
                return function.get("name")
    return None


def _with_arguments(message: Message, convert: Callable[[object], object]) -> Message:
    if not (calls := _calls(message)):
        return message
    return message | {"tool_calls": [_convert_call(call, convert) for call in calls]}


def _convert_call(call: Mapping[str, object], convert: Callable[[object], object]) -> Message:
    function = call.get("function")
    if not isinstance(function, Mapping) or "arguments" not in function:
        return dict(call)
    return {**call, "function": {**function, "arguments": convert(function["arguments"])}}


def _parsed(arguments: object) -> object:
    """A JSON object where the string is one; else the string as it came, since the model wrote it."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _as_json(arguments: object) -> object:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
