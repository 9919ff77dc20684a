"""Requests made from the OpenAPI document by schemathesis: no answer is a 500, and each is as the document says.

OCTAVO_FUZZ_CASES sets how many there are in all; with -s the figures are printed.
"""

import copy
import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from server.fields.common import keys_of
from server.routes import ENDPOINTS
from server.settings import ServingOptions
from server.wire.endpoint import Endpoint
from tests.fuzz.app_under_test import AppUnderTest
from tests.fuzz.fitting import fitted
from tests.fuzz.wire import assert_error_shape, assert_stream
from tests.server.harness import openapi_document

CASES = int(os.environ.get("OCTAVO_FUZZ_CASES", "2000"))
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SHARES = {  # of every 1000 cases
    "/v1/chat/completions": 200,
    "/v1/completions": 230,
    "/v1/responses": 130,
    "/v1/messages": 100,
    "/v1/embeddings": 100,
    "/v1/tokenize": 70,
    "/v1/detokenize": 50,
    "/v1/apply-template": 20,
    "/v1/chat/completions/input_tokens": 20,
    "/v1/messages/count_tokens": 20,
    "/v1/responses/input_tokens": 20,
    "/v1/chat/completions/render": 10,
}
LEAST_SHARE = 5  # of the other paths that have a parameter; without one there is a single request to make
LEAST_ANSWERED = 0.6  # of the bodies that the schema allows: with fewer, the test would stay at the surface

SCHEMA = schemathesis.openapi.from_dict(openapi_document())


def cases_of(operation: Endpoint) -> tuple[int, int]:
    """How many that the document allows, and how many that it forbids."""
    if operation.body is None and "{" not in operation.plain_path:
        return 1, 0
    number = CASES * SHARES.get(operation.plain_path, LEAST_SHARE) // 1000
    wrong = max(1, number // 6) if can_be_wrong(operation) else 0
    return max(1, number - wrong), wrong


def can_be_wrong(operation: Endpoint) -> bool:
    return operation.body is not None or bool(operation.query)


def test_the_shares_make_a_whole() -> None:
    shares = [SHARES.get(one.plain_path, LEAST_SHARE) for one in ENDPOINTS if one.body or "{" in one.plain_path]
    assert sum(shares) == 1000
    assert SHARES.keys() <= {one.plain_path for one in ENDPOINTS}


def name_of(row: Endpoint) -> str:
    return f"{row.method} {row.plain_path}"


@pytest.fixture(scope="module")
def apps() -> Iterator[list[AppUnderTest]]:
    """One that answers to any name of a model, and one that answers to its own only."""
    both = [AppUnderTest(ServingOptions(any_model=any_model)) for any_model in (True, False)]
    yield both
    for app in both:
        app.close()


@pytest.fixture(scope="module")
def tally() -> Iterator[Counter[tuple[str, str, int]]]:
    """How often each operation answered with each status."""
    counted: Counter[tuple[str, str, int]] = Counter()
    yield counted
    print(f"\n{counted.total()} cases")
    for (label, mode, status), number in sorted(counted.items()):
        print(f"{number:6} {status} {mode:8} {label}")


@pytest.mark.parametrize("operation", ENDPOINTS, ids=name_of)
def test_what_the_document_allows(
    operation: Endpoint, apps: list[AppUnderTest], tally: Counter[tuple[str, str, int]]
) -> None:
    number, _ = cases_of(operation)
    answers = run_cases(operation, GenerationMode.POSITIVE, number, apps, tally)
    assert len(answers) == number
    if operation.plain_path in SHARES and number >= 50:
        assert sum(status == 200 for status in answers) >= LEAST_ANSWERED * number


@pytest.mark.parametrize("operation", [*filter(can_be_wrong, ENDPOINTS)], ids=name_of)
def test_what_the_document_forbids(
    operation: Endpoint, apps: list[AppUnderTest], tally: Counter[tuple[str, str, int]]
) -> None:
    _, number = cases_of(operation)
    assert len(run_cases(operation, GenerationMode.NEGATIVE, number, apps, tally)) == number


def run_cases(
    operation: Endpoint,
    mode: GenerationMode,
    number: int,
    apps: list[AppUnderTest],
    tally: Counter[tuple[str, str, int]],
) -> list[int]:
    """The statuses of the answers, each of which was checked."""
    described = SCHEMA[operation.plain_path][operation.method]
    statuses = []

    @settings(
        max_examples=number,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=described.as_strategy(generation_mode=mode), app=st.sampled_from(apps), kind=st.integers(0, 3))
    def check(case: Case[Any], app: AppUnderTest, kind: int) -> None:
        if mode is GenerationMode.POSITIVE and kind < 3:  # one of four stays as it is
            fit(case, operation, app)
        answer = send(case, app)
        statuses.append(answer.status_code)
        tally[described.label, mode.value, answer.status_code] += 1
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code >= 400:
            assert_error_shape(operation.plain_path, answer)
        elif answer.headers["content-type"].startswith("text/event-stream"):
            assert_stream(operation, answer.text)
        assert app.model.service.running == 0

    check()
    return statuses


def fit(case: Case[Any], operation: Endpoint, app: AppUnderTest) -> None:
    """Make the case one that can be answered, where the schema alone does not see to it."""
    if operation.body is not None:
        body: Any = copy.deepcopy(case.body)
        known = keys_of(operation.body)
        case.body = fitted(operation.plain_path, body, known, model=app.model.id, tokens=256, previous=app.kept)
    if "response_id" in case.path_parameters:
        case.path_parameters = {"response_id": app.keep_response()}
    if "name" in case.path_parameters:
        case.path_parameters = {"name": app.model.id}


def send(case: Case[Any], app: AppUnderTest) -> httpx.Response:
    request: dict[str, Any] = case.as_transport_kwargs(base_url="http://localhost")
    content = json.dumps(request["json"]).encode() if "json" in request else request.get("data")
    return app.request(
        request["method"],
        request["url"],
        content=content,
        params=request["params"],
        headers=dict(request["headers"]),
    )
