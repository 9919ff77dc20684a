"""The listening socket."""

import errno
import socket

from engine.errors import OctavoError

BACKLOG = 2048


class BindError(OctavoError):
    """The address cannot be listened on."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; raises BindError with one sentence that says what to change."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise BindError(f"Cannot resolve the host '{host}': {error.strerror or error}; check --host.") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise BindError(_bind_failure(error, host, port)) from error
    listener.setblocking(False)
    return listener


def _bind_failure(error: OSError, host: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"Port {port} on {host} is in use by another program; stop it, or choose another with --port."
        case errno.EACCES | errno.EPERM:
            return f"Port {port} needs more rights than this user has; choose one above 1023 with --port."
        case errno.EADDRNOTAVAIL:
            return f"This machine has no address {host}; choose another with --host."
        case _:
            return f"Cannot listen on {host}, port {port}: {error.strerror or error}."
