"""Which names this server answers to, and which web pages may call it: what keeps other sites' pages out.

A page of any site can send requests to 127.0.0.1, and can give its own name that address (DNS rebinding). So without
an API key, the Host header must be a name of ours, and the Origin header, which browsers send, a page that is trusted.
"""

import ipaddress
import re
from collections.abc import Collection
from functools import lru_cache

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from server.errors import ForbiddenError, clip
from server.wire.wire_error import error_response

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
LOCAL_ORIGIN = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")
WILDCARD_ADDRESSES = frozenset({"0.0.0.0", "::"})
ANY_ORIGIN = "*"

METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS")
EXPOSED_HEADERS = ("x-request-id", "x-ignored-params", "retry-after", "x-should-retry")
PREFLIGHT_SECONDS = 600


class Sites:
    """The names and the pages that are trusted: this machine's own, and those that were configured."""

    def __init__(self, bind_host: str, allowed_hosts: Collection[str] = (), cors_origins: Collection[str] = ()) -> None:
        self.origins = frozenset(origin.rstrip("/").lower() for origin in cors_origins)
        self._hosts = LOCAL_HOSTS | {host_name(host) for host in (bind_host, *allowed_hosts)}
        # On all addresses any of them is ours; a rebound name is never an address.
        self._any_address = bind_host in WILDCARD_ADDRESSES

    def knows_host(self, host: str) -> bool:
        name = host_name(host)
        return name in self._hosts or (self._any_address and _is_address(name))

    def trusts_origin(self, origin: str) -> bool:
        origin = origin.lower()
        return bool(self.origins & {ANY_ORIGIN, origin}) or LOCAL_ORIGIN.fullmatch(origin) is not None


class SiteGuard:
    """ASGI middleware for a server without API keys: 403 for foreign names and for pages of foreign sites."""

    def __init__(self, app: ASGIApp, sites: Sites) -> None:
        self.app = app
        self.sites = sites

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = self._problem(Headers(scope=scope)) if scope["type"] == "http" else None
        if problem is None:
            await self.app(scope, receive, send)
        else:
            await error_response(problem)(scope, receive, send)

    def _problem(self, headers: Headers) -> ForbiddenError | None:
        hosts = headers.getlist("host")
        for host in hosts:
            if not self.sites.knows_host(host):
                return ForbiddenError(
                    f"This server does not go by the name '{clip(host)}'; add it with --allowed-host if it is yours.",
                    code="host_not_allowed",
                )
        for origin in headers.getlist("origin"):
            own = [f"{scheme}://{host}".lower() for host in hosts for scheme in ("http", "https")]
            if not self.sites.trusts_origin(origin) and origin.lower() not in own:
                return _foreign_origin(origin)
        return None


class Cors(CORSMiddleware):
    """Lets trusted pages of other origins read answers, errors too, and answers their preflights without a key."""

    def __init__(self, app: ASGIApp, sites: Sites) -> None:
        super().__init__(
            app,
            allow_origins=[ANY_ORIGIN] if ANY_ORIGIN in sites.origins else [],
            allow_methods=METHODS,
            allow_headers=["*"],
            allow_private_network=True,
            expose_headers=EXPOSED_HEADERS,
            max_age=PREFLIGHT_SECONDS,
        )
        self._sites = sites

    def is_allowed_origin(self, origin: str) -> bool:
        return self._sites.trusts_origin(origin)

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code == 200:
            return response
        if not self.is_allowed_origin(request_headers["origin"]):
            return error_response(_foreign_origin(request_headers["origin"]))
        method = clip(request_headers["access-control-request-method"], 32)
        return error_response(
            ForbiddenError(f"No path takes the method '{method}'; use one of {', '.join(METHODS)}.", code="cors_method")
        )


@lru_cache(64)  # what clients call a server is one name or a few; to tell an address from a name takes long
def host_name(authority: str) -> str:
    """The name in "name:port", "[address]:port" or a bare address of IPv6, in lower case."""
    authority = authority.strip().lower()
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    if _is_address(authority):
        return authority
    return authority.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _foreign_origin(origin: str) -> ForbiddenError:
    return ForbiddenError(
        f"Pages of '{clip(origin)}' may not call this server; add it with --cors-origin if they should.",
        code="origin_not_allowed",
    )
