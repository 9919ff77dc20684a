"""Addresses that can and cannot be listened on, and what the banner makes of them."""

import pytest

from server.cli.run_server import ExposureError, base_url, check_exposure
from server.wire.lifecycle import BindError, bind


def test_port_zero_takes_a_free_port() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert listener.getsockname()[1] > 0


def test_a_port_in_use_is_a_sentence() -> None:
    with bind("127.0.0.1", 0) as listener, pytest.raises(BindError, match=r"in use by another program.*--port"):
        bind("127.0.0.1", listener.getsockname()[1])


@pytest.mark.parametrize("host", ["192.0.2.1", "256.256.256.256", "no such host"])
def test_a_host_that_is_not_ours_is_a_sentence(host: str) -> None:
    with pytest.raises(BindError, match="--host"):
        bind(host, 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_neither_key_nor_warning(host: str) -> None:
    assert check_exposure(host, has_keys=False, insecure=False) is None


NETWORK = ["0.0.0.0", "::", "192.168.1.5", "example.org"]


@pytest.mark.parametrize("host", NETWORK)
def test_the_network_is_refused_without_a_key_in_one_sentence(host: str) -> None:
    with pytest.raises(ExposureError, match=r"OCTAVO_API_KEY or --api-key, or say --insecure-no-key") as refused:
        check_exposure(host, has_keys=False, insecure=False)
    assert host in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("host", NETWORK)
def test_a_key_or_the_express_wish_lets_it_listen(host: str) -> None:
    assert check_exposure(host, has_keys=True, insecure=False) is None
    assert host in (check_exposure(host, has_keys=False, insecure=True) or "")


def test_the_url_is_one_that_can_be_opened() -> None:
    assert base_url("0.0.0.0", 1) == "http://127.0.0.1:1/v1"
    assert base_url("::1", 2) == "http://[::1]:2/v1"
    assert base_url("localhost", 3) == "http://localhost:3/v1"
