"""A chat that does not fit the context: which of its messages is the one to shorten."""

from collections.abc import Sequence

from engine.errors import ContextLengthError
from server.api.chat.body import AssistantMessage, ChatBody, Message
from server.api.tokens.body import BiggestMessage
from server.generate.prompts import checked_length
from server.served import ServedModel, Tokenizer


def biggest_message(messages: Sequence[Message], tokenizer: Tokenizer) -> BiggestMessage:
    """The message with the most tokens; the first of several."""
    counts = [len(tokenizer.encode(_own_text(message))) for message in messages]
    index = counts.index(max(counts))
    return BiggestMessage(index=index, role=messages[index].role, tokens=counts[index])


def checked_chat_length(body: ChatBody, prompt: Sequence[int], model: ServedModel) -> tuple[int, ...]:
    """The prompt, if it leaves room for an answer; the error else names the biggest message. Blocking."""
    try:
        return checked_length(prompt, model, "messages")
    except ContextLengthError as error:
        biggest = biggest_message(body.messages, model.tokenizer)
        hint = f"the biggest message is messages[{biggest.index}] ({biggest.role}) with {biggest.tokens} tokens"
        error.args = (f"{str(error).rstrip('.')}; {hint}.",)
        raise


def _own_text(message: Message) -> str:
    texts = [part.text for part in message.content]
    if isinstance(message, AssistantMessage):
        texts += [message.reasoning_content or message.reasoning or ""]
        texts += [str(call.function.arguments) for call in message.tool_calls]
    return "\n".join(texts)
