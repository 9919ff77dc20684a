"""BB-082: no grammar, schema or regex takes the server's time or memory, at compiling or at each token."""

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import GrammarTimeoutError, RequestError
from engine.text.constraints.compiler import ConstraintCompiler
from engine.text.constraints.rules import json_schema_rule, regex_rule
from engine.text.sandbox import compile_process
from engine.text.sandbox.compile_process import TOO_COMPLEX, WORKER, CompileProcess
from tests.engine.text.constraints.random_answers import allowed
from tests.engine.text.constraints.tokenizers import compiler, constraint, tiny

STEPS = 150

REFUSED_SCHEMAS: dict[str, Any] = {
    "a type that is none": {"type": "something"},
    "a type that is a number": {"type": ["string", 5]},
    "a pattern that is a number": {"pattern": 5},
    "100,000 constants": {"enum": [f"value {number}" for number in range(100_000)]},
    "a loop of references": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    },
    "a constant of a megabyte": {"const": "x" * (1 << 20)},
    "20,000 properties": {"properties": {f"p{number}": {} for number in range(20_000)}},
    "patterns without end": {"anyOf": [{"pattern": f"a{{{number}}}" * 99} for number in range(99)]},
    "alternatives of alternatives": {
        "allOf": [
            {"anyOf": [{"properties": {f"a{i}": {"type": "string", "minLength": j}}} for j in range(12)]}
            for i in range(8)
        ]
    },
}
# These compile; what they cost shows token by token.
COSTLY_RULES: dict[str, Callable[[], str]] = {
    "(a+)+b": lambda: json_schema_rule({"type": "string", "pattern": "^(a+)+b$"}, param="s"),
    "nested counts": lambda: regex_rule("((a{1,500}){1,500}){1,500}", param="s"),
    "many stars": lambda: regex_rule("(.*.*.*.*){9999}", param="s"),
    "many states": lambda: regex_rule("(.*a.{20}){20}", param="s"),
    "a long string": lambda: json_schema_rule({"type": "string", "maxLength": 10**9}, param="s"),
    "a long array": lambda: json_schema_rule({"type": "array", "items": {}, "minItems": 10**9}, param="s"),
    "20,000 constants": lambda: json_schema_rule({"enum": [f"v{i}" for i in range(20_000)]}, param="s"),
    "counts of counts": lambda: '((("a"{1,1000}){1,1000}){1,1000}){1,1000}',
    "ambiguity": lambda: 's\ns: s s | "a" | s s s',
}


@pytest.mark.parametrize("name", REFUSED_SCHEMAS)
def test_a_schema_bomb_is_refused(name: str) -> None:
    with pytest.raises(RequestError) as error:
        compiler().compile(f"start: {json_schema_rule(REFUSED_SCHEMAS[name], param='s')}", param="s")
    assert error.value.param is not None and error.value.param.startswith("s")
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("depth", [65, 5_000])
def test_a_schema_too_deep_is_refused(depth: int) -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"allOf": [schema]}
    with pytest.raises(RequestError, match="nested"):
        json_schema_rule(schema, param="s")


@pytest.mark.parametrize("name", COSTLY_RULES)
def test_a_costly_grammar_runs_or_ends_its_own_request(name: str) -> None:
    matcher = constraint(COSTLY_RULES[name]()).start()
    rng = np.random.default_rng(0)
    try:
        for _ in range(STEPS):
            choices = [i for i in np.flatnonzero(allowed(matcher)) if i not in tiny().end_ids]
            if not choices:
                break
            matcher.accept(int(rng.choice(choices)))
    except RequestError as error:
        assert error.param == "rule" and "make it simpler" in str(error)


def test_an_object_of_10000_optional_properties_is_refused_by_its_size() -> None:
    schema = {"type": "object", "properties": {f"p{number}": {} for number in range(10_000)}}
    with pytest.raises(RequestError, match="grammar size"):
        compiler().compile(f"start: %json {json.dumps(schema)}", param="p")


ENDLESS = f"start: %json {json.dumps({'type': 'integer', 'multipleOf': 123456789})}"


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Workers whose time is short: this grammar takes all their memory within a second."""
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER.read_text().replace("PROCESSOR_SECONDS = 15.0", "PROCESSOR_SECONDS = 0.1"))
    monkeypatch.setattr(compile_process, "WORKER", worker)


@pytest.mark.usefixtures("hasty")
def test_a_compile_without_end_is_stopped_and_is_no_verdict_on_the_grammar() -> None:
    """llguidance would take minutes, in one call that nothing can stop."""
    compiler = ConstraintCompiler(tiny())
    for _ in range(2):
        with pytest.raises(GrammarTimeoutError, match="send the request again"):
            compiler.compile(ENDLESS, param="p")
    assert compiler._cache.get(ENDLESS) is None
    assert compiler.compile('start: "a"', param="p").start().mask().any()


@pytest.mark.usefixtures("hasty")
def test_a_bomb_ends_the_worker_and_the_next_grammar_finds_another() -> None:
    process = CompileProcess({"size": 300, "special": {299: "<end>"}, "ends": [299]})
    assert process.complaint('start: "a"') == ""
    first = process._worker._process
    with pytest.raises(GrammarTimeoutError):
        process.complaint(ENDLESS)
    assert process.complaint('start: "b"') == ""
    assert first is not None and process._worker._process is not first


def test_a_worker_that_runs_out_of_memory_tells_that_the_grammar_is_too_complex(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER.read_text().replace("MEMORY_BYTES = 64 << 20", "MEMORY_BYTES = 1 << 20"))
    monkeypatch.setattr(compile_process, "WORKER", worker)
    process = CompileProcess({"size": 300, "special": {299: "<end>"}, "ends": [299]})
    constants = {"enum": [f"value {number}" for number in range(20_000)]}
    assert process.complaint(f"start: %json {json.dumps(constants)}") == TOO_COMPLEX


def test_a_worker_that_was_killed_is_replaced() -> None:
    process = CompileProcess({"size": 300, "special": {299: "<end>"}, "ends": [299]})
    assert "unknown name" in process.complaint("start: b")
    assert process._worker._process is not None
    process._worker._process.kill()
    process._worker._process.wait()
    assert process.complaint('start: "a"') == ""


def test_the_worker_ends_with_its_owner() -> None:
    process = CompileProcess({"size": 300, "special": {299: "<end>"}, "ends": [299]})
    process.complaint('start: "a"')
    worker = process._worker._process
    assert worker is not None
    del process
    gc.collect()
    assert worker.poll() is not None
