"""Going back to responses: previous_response_id, and what can be asked of a response that is kept."""

from typing import Any

import openai
import pytest
from openai.types.responses import Response
from openai.types.responses.response_item_list import ResponseItemList

from engine.text.formats.parts import CallArguments, CallBegin, CallEnd, Content, Reasoning
from server.api.responses.answers import ItemPage
from server.settings import ServingOptions
from tests.server.harness import http_client, openai_client
from tests.server.scripted.engine import PlainTemplate, ScriptedModel, scripted_model
from tests.server.scripted.parted import parted_model

ASK: dict[str, Any] = {"model": "scripted", "input": "Hi"}
TOOL: Any = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}
CALL = (CallBegin(0, "look"), CallArguments(0, "{}"), CallEnd(0))


def last_chat(model: ScriptedModel) -> list[tuple[object, object]]:
    assert isinstance(model.template, PlainTemplate)
    return [(message["role"], message["content"]) for message in model.template.calls[-1][0]]


async def test_three_turns_without_sending_the_first_two_again() -> None:
    model = scripted_model("Ho")
    async with openai_client(model) as client:
        first = await client.responses.create(**ASK, instructions="Be brief.")
        second = await client.responses.create(model="scripted", input="And?", previous_response_id=first.id)
        await client.responses.create(model="scripted", input="So?", previous_response_id=second.id)
    assert last_chat(model) == [
        *(("user", "Hi"), ("assistant", "Ho"), ("user", "And?"), ("assistant", "Ho"), ("user", "So?")),
    ]


async def test_a_stream_is_kept_too() -> None:
    model = scripted_model("Ho")
    async with openai_client(model) as client:
        async with client.responses.stream(**ASK) as stream:
            first = await stream.get_final_response()
        await client.responses.create(model="scripted", input="And?", previous_response_id=first.id)
    assert last_chat(model)[:2] == [("user", "Hi"), ("assistant", "Ho")]


async def test_the_result_of_a_call_needs_nothing_but_the_earlier_response() -> None:
    model = parted_model(Reasoning("Hm."), Content("I look."), *CALL)
    async with openai_client(model) as client:
        first = await client.responses.create(**ASK, tools=[TOOL])
        call: Any = first.output[2]
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sky"}
        await client.responses.create(model="scripted", input=[result], previous_response_id=first.id, tools=[TOOL])
    assert last_chat(model) == [("user", "Hi"), ("assistant", "I look."), ("tool", "sky")]


async def test_a_response_can_be_read_again() -> None:
    async with openai_client(scripted_model("Ho")) as client:
        first = await client.responses.create(**ASK)
        again = await client.responses.retrieve(first.id)
    assert again.model_dump() == first.model_dump()
    Response.model_validate(again.model_dump(by_alias=True), strict=True)


async def test_a_deleted_response_is_gone() -> None:
    async with openai_client(scripted_model("Ho")) as client:
        first = await client.responses.create(**ASK)
        await client.responses.delete(first.id)
        for act in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
            with pytest.raises(openai.NotFoundError):
                await act(first.id)
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(**ASK, previous_response_id=first.id)
    assert caught.value.code == "previous_response_not_found"


async def test_what_is_not_to_be_stored_is_not() -> None:
    async with openai_client(scripted_model("Ho")) as client:
        first = await client.responses.create(**ASK, store=False)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(first.id)


async def test_only_background_responses_can_be_cancelled() -> None:
    async with openai_client(scripted_model("Ho")) as client:
        first = await client.responses.create(**ASK)
        with pytest.raises(openai.BadRequestError, match="background"):
            await client.responses.cancel(first.id)


async def test_a_response_is_its_callers_own() -> None:
    options = ServingOptions(api_keys=("one", "two"))
    one, two = {"authorization": "Bearer one"}, {"x-api-key": "two"}
    async with http_client(scripted_model("Ho"), options) as client:
        name = (await client.post("/v1/responses", json=ASK, headers=one)).json()["id"]
        follow = {**ASK, "previous_response_id": name}
        assert (await client.get(f"/v1/responses/{name}", headers=two)).status_code == 404
        assert (await client.delete(f"/v1/responses/{name}", headers=two)).status_code == 404
        assert (await client.post("/v1/responses", json=follow, headers=two)).status_code == 400
        assert (await client.post("/v1/responses", json=follow, headers=one)).status_code == 200
        assert (await client.get(f"/responses/{name}", headers=one)).status_code == 200


async def test_the_items_that_a_response_answered_page_by_page() -> None:
    items: Any = [{"role": "user", "content": f"{number}"} for number in range(5)]
    async with http_client(scripted_model("Ho")) as client:
        name = (await client.post("/v1/responses", json={**ASK, "input": items})).json()["id"]
        path = f"/v1/responses/{name}/input_items"
        newest = (await client.get(path, params={"limit": 2})).json()
        older = (await client.get(path, params={"limit": 2, "after": newest["last_id"]})).json()
        oldest = (await client.get(path, params={"order": "asc", "limit": 100})).json()
    for page in (newest, older, oldest):
        ResponseItemList.model_validate(page)
        ItemPage.model_validate(page)
    texts = [[item["content"][0]["text"] for item in page["data"]] for page in (newest, older, oldest)]
    assert texts == [["4", "3"], ["2", "1"], ["0", "1", "2", "3", "4"]]
    assert [page["has_more"] for page in (newest, older, oldest)] == [True, True, False]


async def test_the_sdk_walks_all_items_of_a_conversation() -> None:
    model = parted_model(Reasoning("Hm."), Content("Ho"), *CALL)
    async with openai_client(model) as client:
        first = await client.responses.create(**ASK, tools=[TOOL])
        call: Any = first.output[2]
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sky"}
        second = await client.responses.create(model="scripted", input=[result], previous_response_id=first.id)
        items = [item async for item in client.responses.input_items.list(second.id, order="asc", limit=2)]
    assert [item.type for item in items] == ["message", "reasoning", "message", "function_call", "function_call_output"]


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up", "after=msg_unknown"])
async def test_a_bad_page_is_refused(query: str) -> None:
    async with http_client(scripted_model("Ho")) as client:
        name = (await client.post("/v1/responses", json=ASK)).json()["id"]
        response = await client.get(f"/v1/responses/{name}/input_items?{query}")
    assert response.status_code == 400
    assert response.json()["error"]["param"] == query.partition("=")[0]


async def test_a_kept_response_is_not_streamed_again() -> None:
    async with http_client(scripted_model("Ho")) as client:
        name = (await client.post("/v1/responses", json=ASK)).json()["id"]
        response = await client.get(f"/v1/responses/{name}?stream=true")
    assert (response.status_code, response.json()["error"]["param"]) == (400, "stream")
