"""Which names this server answers to, and which web pages may call it: what keeps other sites' pages out.

A page of any site can send requests to 127.0.0.1, and can give its own name that address (DNS rebinding). So without
an API key, the Host header must be a name of ours, and the Origin header, which browsers send, a page that is trusted.

A server that listens beyond this machine was opened on purpose, and others give it what name they like: containers,
clusters, proxies. There the Host header may be any; a page that calls itself ours still needs a name that nobody can
buy. Probes of health are answered by whatever name.
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
from server.wire.endpoint import resource_of
from server.wire.wire_error import error_response

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
# Names under .localhost are this machine's too (RFC 6761): http://tauri.localhost is a page of Tauri on Windows.
LOCAL_ORIGIN = re.compile(r"https?://(([a-z0-9_-]+\.)*localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")
# Pages of programs on this machine. No web site can have one of these schemes.
APP_ORIGIN = re.compile(
    r"(app|capacitor|electron|file|ionic|tauri|vscode-file|vscode-webview)://[a-z0-9._~+-]*(:\d{1,5})?"
)
PRIVATE_ENDINGS = (".localhost", ".local", ".internal", ".home.arpa")  # names that nobody can buy, beside bare ones
ANY_ORIGIN = "*"

METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS")
EXPOSED_HEADERS = ("x-request-id", "x-ignored-params", "retry-after", "x-should-retry")
PREFLIGHT_SECONDS = 600


class Sites:
    """The names and the pages that are trusted: this machine's own, and those that were configured."""

    def __init__(self, bind_host: str, allowed_hosts: Collection[str] = (), cors_origins: Collection[str] = ()) -> None:
        self.origins = frozenset(origin.rstrip("/").lower() for origin in cors_origins)
        self._hosts = LOCAL_HOSTS | {host_name(host) for host in (bind_host, *allowed_hosts)}
        self._is_open = not is_loopback(bind_host)

    def knows_host(self, host: str) -> bool:
        name = host_name(host)
        return self._is_open or name in self._hosts or name.endswith(".localhost")

    def trusts_origin(self, origin: str) -> bool:
        """Whether a page may call, by whatever name it calls this server."""
        origin = origin.lower()
        if self.origins & {ANY_ORIGIN, origin}:
            return True
        return bool(LOCAL_ORIGIN.fullmatch(origin) or APP_ORIGIN.fullmatch(origin))

    def serves_origin(self, origin: str, host: str) -> bool:
        """Whether a page is one of this server's own, which a Host header names."""
        is_same = origin.lower() in (f"{scheme}://{host}".lower() for scheme in ("http", "https"))
        return is_same and self._has_name(host_name(host))

    def _has_name(self, name: str) -> bool:
        # On an open server a name that can be bought may be one that was rebound to us.
        return name in self._hosts or "." not in name or name.endswith(PRIVATE_ENDINGS) or _is_address(name)


class SiteGuard:
    """ASGI middleware for a server without API keys: 403 for foreign names and for pages of foreign sites."""

    def __init__(self, app: ASGIApp, sites: Sites) -> None:
        self.app = app
        self.sites = sites

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_guarded = scope["type"] == "http" and not resource_of(scope).is_open
        problem = self._problem(Headers(scope=scope)) if is_guarded else None
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
            is_own = any(self.sites.serves_origin(origin, host) for host in hosts)
            if not self.sites.trusts_origin(origin) and not is_own:
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


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from this machine only."""
    return ipaddress.ip_address(host).is_loopback if _is_address(host) else host == "localhost"


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
