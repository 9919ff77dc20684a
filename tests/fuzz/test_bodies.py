"""Mutated JSON on every route that takes a body: no crash, no 5xx, and errors of the API's shape.

OCTAVO_FUZZ_BODIES sets how many bodies each route gets.
"""

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.routes import ENDPOINTS
from server.settings import ServingOptions
from tests.fuzz.app_under_test import AppUnderTest
from tests.fuzz.bodies import BODIES
from tests.fuzz.mutation import mutated
from tests.fuzz.wire import assert_error_shape, assert_stream

BODIES_A_ROUTE = int(os.environ.get("OCTAVO_FUZZ_BODIES", "250"))
BODY_ENDPOINTS = {one.plain_path: one for one in ENDPOINTS if one.body is not None}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def apps() -> Iterator[list[AppUnderTest]]:
    """One that leaves out what it does not know, and one that refuses it."""
    both = [AppUnderTest(ServingOptions(strict_params=strict)) for strict in (False, True)]
    yield both
    for app in both:
        app.close()


def test_the_bank_has_bodies_for_every_route_and_all_are_answered(apps: list[AppUnderTest]) -> None:
    assert BODIES.keys() == BODY_ENDPOINTS.keys()
    for path, bodies in BODIES.items():
        assert [apps[0].request("POST", path, json=body).status_code for body in bodies] == [200] * len(bodies)


@pytest.mark.parametrize("path", BODIES)
def test_mutated_bodies(path: str, apps: list[AppUnderTest]) -> None:
    statuses: Counter[int] = Counter()

    @settings(
        max_examples=BODIES_A_ROUTE,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(raw=mutated(BODIES[path]), app=st.sampled_from(apps))
    def check(raw: bytes, app: AppUnderTest) -> None:
        answer = app.request("POST", path, content=raw, headers=JSON)
        statuses[answer.status_code] += 1
        assert answer.status_code in (200, 400, 404)
        if answer.status_code != 200:
            assert_error_shape(path, answer)
        elif answer.headers["content-type"].startswith("text/event-stream"):
            assert_stream(BODY_ENDPOINTS[path], answer.text)
        assert app.model.service.running == 0

    check()
    assert statuses.total() >= BODIES_A_ROUTE
    assert statuses[200] and statuses[400]  # some changes do no harm, and some do
