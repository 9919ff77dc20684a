"""POST /v1/chat/completions, with the OpenAI SDK and its types as the oracle."""

from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from engine.api.request import Request
from engine.errors import EngineFaultError, RequestError
from server.settings import ServingOptions
from tests.server.harness import CHAT, http_client, openai_client
from tests.server.scripted.engine import PlainTemplate, ScriptedModel, ScriptedService, scripted_model

MESSAGES: Any = CHAT["messages"]


async def test_a_whole_answer_has_every_field_the_sdk_knows() -> None:
    async with openai_client(scripted_model("Hello", " world")) as client:
        answer = await client.chat.completions.create(model="scripted", messages=MESSAGES)
    ChatCompletion.model_validate(answer.model_dump(), strict=True)
    choice = answer.choices[0]
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "Hello world", "stop")
    assert (answer.id[:9], answer.object, answer.model) == ("chatcmpl-", "chat.completion", "scripted")
    assert answer.system_fingerprint == "fp_scripted"
    assert answer.usage is not None and answer.usage.prompt_tokens == len("user: Hi\nassistant: ")
    assert answer.usage.completion_tokens == 2
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 2
    assert answer.usage.prompt_tokens_details is not None and answer.usage.prompt_tokens_details.cached_tokens == 0


async def test_fields_that_strict_clients_need_are_present_even_when_null() -> None:
    async with http_client(scripted_model("x")) as client:
        choice = (await client.post("/v1/chat/completions", json=CHAT)).json()["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "x", "refusal": None}
    assert choice["logprobs"] is None


async def test_a_streamed_answer_joins_to_the_whole_one() -> None:
    async with openai_client(scripted_model("Hé", "llo", " 世界")) as client:
        whole = await client.chat.completions.create(model="scripted", messages=MESSAGES)
        stream = await client.chat.completions.create(
            model="scripted", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk.model_dump(), strict=True)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices] == [None] * 4 + ["stop"]
    assert len({(c.id, c.created, c.model) for c in chunks}) == 1
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage


async def test_length_ends_an_answer() -> None:
    async with openai_client(scripted_model("a", "b", "c")) as client:
        answer = await client.chat.completions.create(model="scripted", messages=MESSAGES, max_completion_tokens=2)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("ab", "length")


async def test_sampling_parameters_reach_the_engine() -> None:
    model = scripted_model("x")
    async with openai_client(model) as client:
        await client.chat.completions.create(
            model="scripted",
            messages=MESSAGES,
            temperature=0.5,
            top_p=0.9,
            seed=-1,
            stop=["\n", "END"],
            max_tokens=7,
            extra_body={"top_k": -1, "min_p": 0.05, "ignore_eos": True},
        )
    request = model.service.requests[0]
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.seed) == (0.5, 0.9, -1)
    assert (sampling.top_k, sampling.min_p) == (0, 0.05)
    assert (request.stop, request.max_tokens, request.ignore_eos) == (("\n", "END"), 7, True)


async def test_max_completion_tokens_wins_over_max_tokens() -> None:
    model = scripted_model("x")
    async with http_client(model) as client:
        await client.post("/v1/chat/completions", json={**CHAT, "max_tokens": 9, "max_completion_tokens": 4})
    assert model.service.requests[0].max_tokens == 4


async def test_every_optional_null_is_the_same_as_absent() -> None:
    names = (
        "max_tokens max_completion_tokens stop n temperature top_p top_k seed logit_bias tools tool_choice"
        " response_format stream stream_options logprobs top_logprobs presence_penalty frequency_penalty user"
        " reasoning_effort audio modalities functions function_call metadata chat_template_kwargs unknown_thing"
    )
    model = scripted_model("x")
    async with http_client(model) as client:
        bare = await client.post("/v1/chat/completions", json=CHAT)
        nulls = await client.post("/v1/chat/completions", json={**CHAT, **dict.fromkeys(names.split())})
    assert bare.status_code == nulls.status_code == 200
    assert "x-ignored-params" not in nulls.headers
    plain, with_nulls = model.service.requests
    assert (plain.sampling, plain.stop, plain.max_tokens) == (with_nulls.sampling, with_nulls.stop, None)


async def test_whole_numbers_may_be_written_as_floats() -> None:
    model = scripted_model("x")
    async with http_client(model) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, "max_tokens": 5.0, "seed": 3.0})
    assert answer.status_code == 200
    assert (model.service.requests[0].max_tokens, model.service.requests[0].sampling.seed) == (5, 3)


async def test_an_alias_is_answered_with_the_real_id() -> None:
    async with openai_client(scripted_model("x")) as client:
        answer = await client.chat.completions.create(model="gpt-4o", messages=MESSAGES)
    assert answer.model == "scripted"


async def test_an_unknown_model_is_404_with_the_served_names() -> None:
    async with openai_client(scripted_model("x")) as client:
        with pytest.raises(openai.NotFoundError) as caught:
            await client.chat.completions.create(model="gpt-99", messages=MESSAGES)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert "scripted" in caught.value.message and "gpt-4o" in caught.value.message


async def test_any_model_answers_to_any_name() -> None:
    async with openai_client(scripted_model("x"), ServingOptions(any_model=True)) as client:
        assert (await client.chat.completions.create(model="gpt-99", messages=MESSAGES)).model == "scripted"


async def test_paths_without_v1_and_with_a_trailing_slash_answer_too() -> None:
    async with http_client(scripted_model("x")) as client:
        for path in ("/chat/completions", "/v1/chat/completions/", "/chat/completions/"):
            assert (await client.post(path, json=CHAT)).status_code == 200


async def test_template_arguments_pass_through_unless_they_are_the_renderers_own() -> None:
    model = scripted_model("x")
    async with http_client(model) as client:
        good = await client.post(
            "/v1/chat/completions", json={**CHAT, "chat_template_kwargs": {"enable_thinking": False}}
        )
        bad = await client.post("/v1/chat/completions", json={**CHAT, "chat_template_kwargs": {"tokenize": True}})
    assert good.status_code == 200
    assert isinstance(model.template, PlainTemplate) and model.template.calls[0][1] == {"enable_thinking": False}
    assert bad.status_code == 400 and bad.json()["error"]["param"] == "chat_template_kwargs.tokenize"


async def test_the_templates_own_refusal_is_a_400_with_its_words() -> None:
    async with http_client(scripted_model("x")) as client:
        answer = await client.post(
            "/v1/chat/completions", json={**CHAT, "messages": [{"role": "user", "content": "refuse me"}]}
        )
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "The template does not like this."
    assert answer.json()["error"]["param"] == "messages"


async def test_a_model_without_a_template_points_to_completions() -> None:
    async with http_client(ScriptedModel(template=None)) as client:
        answer = await client.post("/v1/chat/completions", json=CHAT)
    assert answer.status_code == 400 and "/v1/completions" in answer.json()["error"]["message"]


async def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers() -> None:
    model = ScriptedModel(context_length=20)
    async with http_client(model) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, "stream": True})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "messages")
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (20, 20)
    assert model.service.requests == []


async def test_a_full_queue_is_429_and_says_when_to_return() -> None:
    model = ScriptedModel(ScriptedService(("x",), max_open=0))
    async with openai_client(model) as client:
        with pytest.raises(openai.RateLimitError) as caught:
            await client.chat.completions.create(model="scripted", messages=MESSAGES, stream=True)
    assert caught.value.response.headers["retry-after"] == "2"


async def test_our_fault_is_a_500_that_is_not_worth_a_retry() -> None:
    async with openai_client(scripted_model("a", EngineFaultError("The server failed on this request."))) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(model="scripted", messages=MESSAGES)
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert caught.value.type == "server_error"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_of_the_client_s_that_shows_late_leaves_no_traceback(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = scripted_model("a", RequestError("The grammar leaves no token.", param="response_format"))
    async with openai_client(model) as client:
        with pytest.raises(openai.APIError, match="leaves no token"):
            answer: Any = await client.chat.completions.create(model="scripted", messages=MESSAGES, stream=stream)
            async for _ in answer:
                pass
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_fault_in_mid_stream_reaches_the_sdk_as_an_error() -> None:
    async with openai_client(scripted_model("a", EngineFaultError("The server failed on this request."))) as client:
        stream = await client.chat.completions.create(model="scripted", messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError, match="The server failed on this request"):
            async for _ in stream:
                pass


async def test_concurrent_streams_keep_their_texts_apart() -> None:
    import asyncio

    def script(request: Request) -> list[str | float]:
        mark = bytes(request.prompt).decode().split(":")[1].split()[0]
        return [piece for _ in range(20) for piece in (mark, 0.0)]

    async def ask(client: openai.AsyncOpenAI, mark: str) -> str:
        stream = await client.chat.completions.create(
            model="scripted", messages=[{"role": "user", "content": mark}], stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async with openai_client(ScriptedModel(ScriptedService(script))) as client:
        marks = [f"<{index}>" for index in range(32)]
        texts = await asyncio.gather(*(ask(client, mark) for mark in marks))
    assert texts == [mark * 20 for mark in marks]


async def test_the_extensions_of_other_servers_reach_the_engine() -> None:
    model = scripted_model("x")
    fields = {
        "frequency_penalty": 0.5,
        "presence_penalty": -0.25,
        "repeat_penalty": 1.1,
        "logit_bias": {"7": -100},
        "allowed_token_ids": [1, 2],
        "bad_words": ["ab"],
        "stop_token_ids": [5],
        "include_stop_str_in_output": True,
        "min_new_tokens": 3,
        "skip_special_tokens": False,
        "t_max_predict_ms": 1500,
        "logprobs": True,
        "top_logprobs": 2,
    }
    async with http_client(model) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, **fields})
    assert answer.status_code == 200 and "x-ignored-params" not in answer.headers
    request = model.service.requests[0]
    sampling = request.sampling
    assert (sampling.frequency_penalty, sampling.presence_penalty, sampling.repetition_penalty) == (0.5, -0.25, 1.1)
    assert (sampling.logit_bias, sampling.allowed_tokens) == (((7, -100.0),), (1, 2))
    assert sampling.banned_sequences == ((97, 98), (32, 97, 98))
    assert (request.stop_tokens, request.include_stop, request.min_tokens) == (frozenset({5}), True, 3)
    assert (request.skip_special_tokens, request.max_seconds, request.logprobs) == (False, 1.5, 2)


async def test_the_first_name_of_two_counts() -> None:
    model = scripted_model("x")
    twice = {"repetition_penalty": 1.2, "repeat_penalty": 1.3, "min_tokens": 1, "min_new_tokens": 2}
    async with http_client(model) as client:
        await client.post("/v1/chat/completions", json={**CHAT, **twice, "max_time_ms": 5, "t_max_predict_ms": 0})
    request = model.service.requests[0]
    assert (request.sampling.repetition_penalty, request.min_tokens, request.max_seconds) == (1.2, 1, 0.005)


async def test_the_last_message_is_continued_only_where_asked_for() -> None:
    model = scripted_model("x")
    messages = [*CHAT["messages"], {"role": "assistant", "content": "Once upon "}]
    async with http_client(model) as client:
        for fields in ({}, {"add_generation_prompt": False}, {"continue_final_message": True}):
            await client.post("/v1/chat/completions", json={**CHAT, "messages": messages, **fields})
    told = "user: Hi\nassistant: Once upon "
    assert [bytes(request.prompt).decode() for request in model.service.requests] == [
        f"{told}\nassistant: ",
        f"{told}\n",
        told,
    ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"continue_final_message": True}, "continue_final_message"),
        (
            {
                "continue_final_message": True,
                "add_generation_prompt": True,
                "messages": [{"role": "assistant", "content": "x"}],
            },
            "add_generation_prompt",
        ),
    ],
)
async def test_only_an_answer_can_be_continued(fields: dict[str, Any], param: str) -> None:
    async with http_client(scripted_model("x")) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, **fields})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_token_ids_and_metadata_come_back_where_sent_for() -> None:
    model = scripted_model("ab", "c")
    fields = {"return_token_ids": True, "metadata": {"run": "7"}}
    async with http_client(model) as client:
        answer = (await client.post("/v1/chat/completions", json={**CHAT, **fields})).json()
    assert answer["prompt_token_ids"] == list(model.service.requests[0].prompt)
    assert answer["choices"][0]["token_ids"] == [model.tokenizer.piece_id("ab"), ord("c")]
    assert answer["metadata"] == {"run": "7"}


async def test_a_fault_of_one_choice_ends_the_answer_and_frees_all_lanes() -> None:
    def script(request: Request) -> list[Any]:
        return ["a", EngineFaultError("It broke.")] if request.choice == 1 else ["a", 60.0]

    model = ScriptedModel(ScriptedService(script))
    async with http_client(model) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, "n": 3})
    assert answer.status_code == 500 and len(model.service.aborted) == 2


async def test_a_queue_without_room_for_all_choices_takes_none() -> None:
    model = ScriptedModel(ScriptedService(("x",), max_open=2))
    async with http_client(model) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, "n": 3})
    assert answer.status_code == 429 and model.service.requests == []
