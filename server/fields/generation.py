"""The fields of every body that asks for text: sampling, where and how the answer ends, what is told beside it."""

from typing import Self

from pydantic import Field, model_validator

from server.fields.common import (
    LARGEST_VOCABULARY,
    BadWord,
    Choices,
    Count,
    LogitBias,
    MaxTokens,
    Metadata,
    Milliseconds,
    MinP,
    Penalty,
    ProtocolModel,
    RepetitionPenalty,
    Seed,
    Standing,
    StopStrings,
    Temperature,
    TokenId,
    TopK,
    TopP,
    invalid,
)
from server.fields.output import ChoiceList, GrammarText, Pattern, ResponseFormat, Schema, StructuredOutputs


class StreamOptions(ProtocolModel):
    include_usage: bool = False


class GenerationBody(Standing):
    """What chat completions and text completions share."""

    model: str
    n: Choices = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    metadata: Metadata | None = None
    # how tokens are chosen
    temperature: Temperature = 1.0
    top_p: TopP = 1.0
    top_k: TopK = 0
    min_p: MinP = 0.0
    seed: Seed | None = None
    frequency_penalty: Penalty = 0.0
    presence_penalty: Penalty = 0.0
    repetition_penalty: RepetitionPenalty | None = None
    repeat_penalty: RepetitionPenalty | None = None  # the same by llama-server's name
    logit_bias: LogitBias = Field(default_factory=dict)
    allowed_token_ids: list[TokenId] | None = Field(None, min_length=1, max_length=LARGEST_VOCABULARY)
    bad_words: list[BadWord] = Field(default_factory=list, max_length=256)
    # where the answer ends
    stop: StopStrings = Field(default_factory=list)
    stop_token_ids: list[TokenId] = Field(default_factory=list, max_length=1024)
    include_stop_str_in_output: bool = False
    max_tokens: MaxTokens | None = None
    min_tokens: Count | None = None
    min_new_tokens: Count | None = None  # the same by SGLang's name
    ignore_eos: bool = False
    max_time_ms: Milliseconds | None = None
    t_max_predict_ms: Milliseconds | None = None  # the same by llama-server's name
    # its form
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | str | None = None
    guided_regex: Pattern | None = None
    guided_choice: ChoiceList | None = None
    guided_grammar: GrammarText | None = None
    json_schema: Schema | str | None = None
    regex: Pattern | None = None
    grammar: GrammarText | None = None
    ebnf: GrammarText | None = None
    skip_special_tokens: bool = True
    # what is told beside it
    return_token_ids: bool = False
    cache_report: bool = False  # what the prefix cache gave, and why not more, in the timings

    @model_validator(mode="after")
    def _options_need_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options", "needs 'stream': true")
        return self

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def fewest_tokens(self) -> int:
        return self.min_new_tokens or 0 if self.min_tokens is None else self.min_tokens

    @property
    def repetition(self) -> float | None:
        """The penalty by either name; None where the request says nothing of it."""
        return self.repeat_penalty if self.repetition_penalty is None else self.repetition_penalty

    @property
    def seconds(self) -> float | None:
        """The time that the answer may take; 0 is llama-server's way to set no bound."""
        limit = self.t_max_predict_ms if self.max_time_ms is None else self.max_time_ms
        return limit / 1e3 if limit else None
