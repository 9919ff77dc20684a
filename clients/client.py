"""A small client of the API, sync and async; both take a transport, so that tests need no socket."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

DEFAULT_URL = "http://127.0.0.1:8080"
DEFAULT_TIMEOUT = httpx.Timeout(600, connect=5)  # seconds; a long prompt may take minutes to its first token

Json = dict[str, Any]
Messages = Sequence[Mapping[str, object]]


class ApiError(Exception):
    """The server's answer was an error, before or in the middle of a stream."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("message", "The server answered with an error that is not in its usual shape.")))
        self.status = status
        self.type: str | None = error.get("type")
        self.param: str | None = error.get("param")
        self.code: str | None = error.get("code")


def _check(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    try:
        error = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        error = {"message": f"HTTP {response.status_code}: {response.text[:200]}"}
    raise ApiError(response.status_code, error)


def _chunk(line: str) -> Json | None:
    """The JSON of a stream's line; None for comments, blank lines and [DONE]. Raises ApiError for an error in it."""
    data = line.removeprefix("data: ")
    if data == line or data == "[DONE]":
        return None
    chunk: Json = json.loads(data)
    if "error" in chunk:
        raise ApiError(200, chunk["error"])
    return chunk


def _headers(api_key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def _chat(model: str, messages: Messages, parameters: Json) -> Json:
    return {"model": model, "messages": list(messages), **parameters}


def _completion(model: str, prompt: str | Sequence[int], parameters: Json) -> Json:
    return {"model": model, "prompt": prompt if isinstance(prompt, str) else list(prompt), **parameters}


class Client:
    """Blocking calls. Parameters beyond the named ones go into the body as they are."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout: httpx.Timeout = DEFAULT_TIMEOUT,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._http = httpx.Client(base_url=url, headers=_headers(api_key), timeout=timeout, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def models(self) -> list[Json]:
        models: list[Json] = _check(self._http.get("/v1/models")).json()["data"]
        return models

    def is_ready(self) -> bool:
        return self._http.get("/ready").is_success

    def chat(self, model: str, messages: Messages, **parameters: Any) -> Json:
        return self._post("/v1/chat/completions", _chat(model, messages, parameters))

    def stream_chat(self, model: str, messages: Messages, **parameters: Any) -> Iterator[Json]:
        return self._stream("/v1/chat/completions", _chat(model, messages, parameters))

    def complete(self, model: str, prompt: str | Sequence[int], **parameters: Any) -> Json:
        return self._post("/v1/completions", _completion(model, prompt, parameters))

    def stream_completion(self, model: str, prompt: str | Sequence[int], **parameters: Any) -> Iterator[Json]:
        return self._stream("/v1/completions", _completion(model, prompt, parameters))

    def _post(self, path: str, body: Json) -> Json:
        answer: Json = _check(self._http.post(path, json=body)).json()
        return answer

    def _stream(self, path: str, body: Json) -> Iterator[Json]:
        with self._http.stream("POST", path, json={**body, "stream": True}) as response:
            if response.is_error:
                response.read()
            for line in _check(response).iter_lines():
                if (chunk := _chunk(line)) is not None:
                    yield chunk


class AsyncClient:
    """The same calls for an event loop."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout: httpx.Timeout = DEFAULT_TIMEOUT,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._http = httpx.AsyncClient(
            base_url=url, headers=_headers(api_key), timeout=timeout, transport=transport, limits=limits
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def models(self) -> list[Json]:
        models: list[Json] = _check(await self._http.get("/v1/models")).json()["data"]
        return models

    async def is_ready(self) -> bool:
        return (await self._http.get("/ready")).is_success

    async def chat(self, model: str, messages: Messages, **parameters: Any) -> Json:
        return await self._post("/v1/chat/completions", _chat(model, messages, parameters))

    def stream_chat(self, model: str, messages: Messages, **parameters: Any) -> AsyncIterator[Json]:
        return self._stream("/v1/chat/completions", _chat(model, messages, parameters))

    async def complete(self, model: str, prompt: str | Sequence[int], **parameters: Any) -> Json:
        return await self._post("/v1/completions", _completion(model, prompt, parameters))

    def stream_completion(self, model: str, prompt: str | Sequence[int], **parameters: Any) -> AsyncIterator[Json]:
        return self._stream("/v1/completions", _completion(model, prompt, parameters))

    async def _post(self, path: str, body: Json) -> Json:
        answer: Json = _check(await self._http.post(path, json=body)).json()
        return answer

    async def _stream(self, path: str, body: Json) -> AsyncIterator[Json]:
        async with self._http.stream("POST", path, json={**body, "stream": True}) as response:
            if response.is_error:
                await response.aread()
            async for line in _check(response).aiter_lines():
                if (chunk := _chunk(line)) is not None:
                    yield chunk
