"""Valid by construction: 60 schemas, random weights at temperature 1.5, and every answer that ends is valid."""

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from engine.api.config import EngineConfig
from engine.api.prompt import Prompt
from engine.api.request import FinishEvent, FinishReason, Request, TextEvent
from engine.api.sampling import Sampling
from engine.loading.load_runner import load_runner
from engine.service import EngineService
from engine.text.constraints.compiler import ConstraintCompiler
from engine.text.constraints.rules import json_schema_rule
from engine.text.tokenizer import Tokenizer
from engine.weights.files.gguf import GgufFile
from tests.engine.text import vocabularies
from tests.engine.text.constraints.random_answers import RandomModel
from tests.engine.text.constraints.tokenizers import compiler, tiny
from tests.tiny.models import write_tiny_llama

SCHEMAS = json.loads((Path(__file__).with_name("data") / "schemas.json").read_text())
FORMATS = jsonschema.FormatChecker(formats=["email", "ipv4", "ipv6", "uuid"])
ENDLESS = ("email",)  # so much of it is free that random tokens seldom come to its end


def fault(schema: Any, text: bytes) -> str | None:
    """Why an answer is not valid, or None."""
    errors = jsonschema.Draft202012Validator(schema, format_checker=FORMATS).iter_errors(json.loads(text.decode()))
    return next((error.message for error in errors), None)


@pytest.fixture(scope="module", params=["tiny", "smollm"])
def model(request: pytest.FixtureRequest) -> RandomModel:
    tokenizer = tiny() if request.param == "tiny" else vocabularies.tokenizer(request.param)
    return RandomModel(tokenizer, request.param)


def test_there_are_sixty_schemas() -> None:
    assert len({entry["name"] for entry in SCHEMAS}) == len(SCHEMAS) == 60


@pytest.mark.parametrize("entry", SCHEMAS, ids=lambda entry: entry["name"])
def test_every_answer_that_ends_is_valid(entry: Any, model: RandomModel) -> None:
    """BB-043: supported schemas are always obeyed."""
    rule = json_schema_rule(entry["schema"], param="schema")
    constraint = compiler(model.name).compile(f"start: {rule}", param="schema")
    answers = [model.answer(constraint, seed) for seed in range(20 if model.name == "tiny" else 4)]
    ended = [model.text(tokens) for tokens, has_ended in answers if has_ended]
    assert [(text, why) for text in ended if (why := fault(entry["schema"], text))] == []
    assert len(ended) >= len(answers) / 4 or entry["name"] in ENDLESS


async def test_a_model_with_random_weights_obeys(tmp_path: Path) -> None:
    file = GgufFile.open(write_tiny_llama(tmp_path / "tiny.gguf", types="Q8_0"))
    tokenizer = Tokenizer.from_metadata(file.metadata)
    grammars = ConstraintCompiler(tokenizer)
    loaded = load_runner(file, EngineConfig(threads=1), lambda stage, share: None)
    service = EngineService(loaded.runner, tokenizer, EngineConfig())
    service.start()
    try:
        for entry in SCHEMAS[5:60:11]:
            rule = json_schema_rule(entry["schema"], param="schema")
            request = Request(
                id=entry["name"],
                prompt=Prompt((1, 2, 3)),
                max_tokens=400,
                sampling=Sampling(temperature=1.5, seed=1),
                constraint=grammars.compile(f"start: {rule}", param="schema"),
            )
            events = [event async for event in service.submit(request)[0]]
            finish = events[-1]
            assert isinstance(finish, FinishEvent)
            text = "".join(event.text for event in events if isinstance(event, TextEvent))
            if finish.reason is FinishReason.STOP:
                assert fault(entry["schema"], text.encode()) is None
    finally:
        await service.stop(drain_seconds=0)
