"""Bodies and answers of /tokenize and /detokenize, in llama-server's dialect and in vLLM's, and of counting tokens."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from server.fields.chat import ChatBody, Message
from server.fields.common import Answer, ProtocolModel, TokenId, invalid

SOURCES = ("content", "prompt", "messages")
RAW_ONLY = ("add_special", "add_special_tokens", "parse_special")


class TemplateBody(ChatBody):
    """A chat to be rendered: what a chat completion takes, and where one model is served, nobody need name it."""

    model: str = ""


class TokenizeBody(TemplateBody):
    """Text to tokens: `content` in llama-server's dialect, `prompt` in vLLM's, or the `messages` of a chat."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [source]} for source in SOURCES]})

    messages: Annotated[list[Message], Field(min_length=1, max_length=16384)] = Field(default_factory=list)
    content: str | None = None
    prompt: str | None = None
    add_special: bool | None = None  # BOS, where the model wants it
    add_special_tokens: bool | None = None  # the same by vLLM's name, whose default it is
    parse_special: bool | None = None  # control tokens written in the text are those tokens
    with_pieces: bool = False
    return_token_strs: bool = False

    @model_validator(mode="before")
    @classmethod
    def _one_source(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        given = {name for name, value in data.items() if value is not None}
        sources = [name for name in SOURCES if name in given]
        if not sources:
            raise invalid("content", "send what to tokenize: content, prompt or messages", "missing_source")
        if len(sources) > 1:
            raise invalid(sources[1], f"stands beside {sources[0]}; send only one of content, prompt and messages")
        if sources == ["messages"]:
            _refuse_raw_switches(data)
        else:
            _refuse_chat_fields(given)
        return data

    @property
    def text(self) -> str | None:
        """The raw text, where it is not a chat."""
        return self.prompt if self.content is None else self.content

    @property
    def adds_special(self) -> bool:
        said = self.add_special_tokens if self.add_special is None else self.add_special
        return self.prompt is not None if said is None else said


def _refuse_raw_switches(data: dict[str, Any]) -> None:
    for name in RAW_ONLY:
        if data.get(name) is True:
            raise invalid(name, "is for raw text; a chat's special tokens are those of its template")


def _refuse_chat_fields(given: set[str]) -> None:
    raw = TokenizeBody.model_fields.keys() - ChatBody.model_fields.keys()
    for name in ChatBody.model_fields:
        if name in given and name not in raw and name != "model":
            raise invalid(name, "is for a chat, and needs 'messages'")


class Piece(Answer):
    id: int
    piece: str | list[int]  # the bytes, where they are no whole characters


class Tokenized(Answer):
    tokens: list[int] | list[Piece]
    count: int
    max_model_len: int
    token_strs: list[str] | None


class DetokenizeBody(ProtocolModel):
    model: str = ""
    tokens: list[TokenId]


class Detokenized(Answer):
    content: str
    prompt: str  # the same by vLLM's name


class RenderedPrompt(Answer):
    prompt: str
    token_ids: list[int]


class BiggestMessage(Answer):
    index: int
    role: str
    tokens: int  # of its own text, without what the template writes around it


class ChatTokenCount(Answer):
    object: Literal["response.input_tokens"]
    input_tokens: int
    max_model_len: int
    fits: bool  # whether there is room for an answer
    biggest_message: BiggestMessage | None  # where it does not fit
