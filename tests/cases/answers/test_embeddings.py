"""Area embeddings: base64 is what the SDK asks for, and says the same as floats."""

import base64
from typing import Any

import numpy as np
import openai
import pytest

from tests.cases.real import RealServer

PATH = "/v1/embeddings"
INPUTS: list[Any] = ["a", ["a", "b"], [72, 105], [[72], [105, 105]], ["the " * 100] * 5]


@pytest.mark.parametrize("fields", [{}, {"dimensions": 7}, {"dimensions": 64}], ids=str)
@pytest.mark.parametrize("text", INPUTS, ids=lambda text: str(text)[:12])
def test_base64_holds_the_floats(plain: RealServer, text: Any, fields: dict[str, int]) -> None:
    """BB-071: the encoding is ignored, or packed wrongly."""
    floats, packed = [
        plain.answer(PATH, {"input": text, "encoding_format": encoding, **fields}) for encoding in ("float", "base64")
    ]
    size = fields.get("dimensions", 64)
    for place, (one, other) in enumerate(zip(floats["data"], packed["data"], strict=True)):
        vector = np.frombuffer(base64.b64decode(other["embedding"], validate=True), "<f4")
        assert vector.tolist() == np.array(one["embedding"], np.float32).tolist()
        assert vector.shape == (size,) and np.isclose(np.linalg.norm(vector), 1, atol=1e-5)
        assert one["index"] == other["index"] == place
    assert floats["usage"] == packed["usage"]


def test_the_sdk_gets_the_same_whether_it_names_an_encoding_or_not(plain: RealServer) -> None:
    """BB-071: openai-python asks for base64 by itself, and decodes it."""
    with openai.OpenAI(base_url=f"{plain.live.url}/v1", api_key="unused", max_retries=0) as sdk:
        silent = sdk.embeddings.create(model="plain", input=["a", "b"])
        floats = sdk.embeddings.create(model="plain", input=["a", "b"], encoding_format="float")
    assert [one.embedding for one in silent.data] == [
        np.array(one.embedding, np.float32).tolist() for one in floats.data
    ]
    assert [one.index for one in silent.data] == [0, 1]
    assert silent.usage == floats.usage


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"encoding_format": "f16"}, "encoding_format"),
        ({"encoding_format": 5}, "encoding_format"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": 65}, "dimensions"),
        ({"dimensions": "7"}, "dimensions"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": [[320]]}, "input[0][0]"),
        ({"input": ["a", 5]}, "input[1]"),
    ],
)
def test_what_cannot_be_is_refused_by_name(plain: RealServer, fields: dict[str, Any], param: str) -> None:
    """BB-071."""
    assert plain.refusal(PATH, {"input": "a", **fields})["param"] == param
