"""Whether a server may listen where it was told to: on the network, only with an API key or by express wish."""

import ipaddress

from engine.errors import OctavoError


class ExposureError(OctavoError):
    """The address is reachable from the network, and nothing asks for a key."""


def check_exposure(host: str, *, has_keys: bool, insecure: bool) -> str | None:
    """A warning to show; raises ExposureError where the server must not start."""
    if has_keys or is_loopback(host):
        return None
    if insecure:
        return (
            f"Warning: listening on {host}, and this server asks for no key:"
            " whoever reaches the port can use the model and see what others ask of it."
        )
    raise ExposureError(
        f"Listening on {host} without an API key would let whoever reaches the port use the model:"
        " set one with OCTAVO_API_KEY or --api-key, or say --insecure-no-key if that is meant."
    )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
