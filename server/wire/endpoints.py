"""A request's path as one of a fixed set of names, so that metrics do not grow with what clients send."""

from collections.abc import Iterable

from fastapi import APIRouter
from starlette.routing import Route

UNKNOWN = "unknown"
PREFIX = "/v1"


class Endpoints:
    """The paths of some routers; a path with and without the /v1 is one endpoint."""

    def __init__(self, routers: Iterable[APIRouter]) -> None:
        routes = [route for router in routers for route in router.routes if isinstance(route, Route)]
        self._plain = {route.path for route in routes if "{" not in route.path}
        self._patterns = [route for route in routes if "{" in route.path]

    def label(self, path: str) -> str:
        path = path.removeprefix(PREFIX)
        if path in self._plain:
            return path
        for route in self._patterns:
            if route.path_regex.match(path):
                return route.path_format
        return UNKNOWN
