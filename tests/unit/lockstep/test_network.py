"""Connections on machines with a proxy, or with a name that is not known."""

from __future__ import annotations

import inspect
import socket
from collections.abc import Callable
from typing import Any

import pytest

from mcnb.lockstep import network
from mcnb.lockstep.network import SILENCE_S, address_for_gloo, bypass_proxy, tolerate_silence


@pytest.mark.parametrize("name", ["grpc_proxy", "https_proxy", "http_proxy"])
def test_each_proxy_of_grpc_is_bypassed(name: str) -> None:
    environment = {name: "http://proxy:3128"}
    bypass_proxy("127.0.0.1:8476", environment)
    assert environment == {name: "http://proxy:3128", "no_grpc_proxy": "127.0.0.1"}


@pytest.mark.parametrize("environment", [{}, {"HTTP_PROXY": "http://proxy"}, {"https_proxy": ""}])
def test_without_a_proxy_nothing_changes(environment: dict[str, str]) -> None:
    before = dict(environment)
    bypass_proxy("127.0.0.1:8476", environment)
    assert environment == before


def test_exceptions_that_exist_are_kept() -> None:
    environment = {"http_proxy": "p", "no_proxy": ".org, ", "no_grpc_proxy": "storage"}
    bypass_proxy("10.0.0.7:1", environment)
    assert environment["no_grpc_proxy"] == "storage,10.0.0.7"
    assert environment["no_proxy"] == ".org, "
    bypass_proxy("10.0.0.7:2", environment)
    assert environment["no_grpc_proxy"] == "storage,10.0.0.7"


def names(monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    """Let the name of this host have an address, or none."""

    def resolve(name: str) -> str:
        assert name == "laptop"
        if address is None:
            raise socket.gaierror(-2, "Name or service not known")
        return address

    monkeypatch.setattr(network.socket, "gethostname", lambda: "laptop")
    monkeypatch.setattr(network.socket, "gethostbyname", resolve)


@pytest.mark.parametrize(
    ("own", "coordinator", "expected"),
    [
        (None, "127.0.0.1:8476", "127.0.0.1"),
        (None, "localhost:8476", "127.0.0.1"),
        ("192.168.0.3", "127.0.0.1:8476", ""),
        ("127.0.1.1", "127.0.0.1:8476", ""),
        ("192.168.0.3", "192.168.0.9:8476", ""),
        ("127.0.1.1", "192.168.0.9:8476", "192.168.0.3"),
        (None, "192.168.0.9:8476", "192.168.0.3"),
    ],
)
def test_gloo_listens_on_an_address_if_the_name_is_of_no_use(
    monkeypatch: pytest.MonkeyPatch, own: str | None, coordinator: str, expected: str
) -> None:
    names(monkeypatch, own)
    ends = {"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "192.168.0.9": "192.168.0.3"}
    monkeypatch.setattr(network, "local_end", ends.__getitem__)
    assert address_for_gloo(coordinator) == expected


@pytest.mark.parametrize(
    ("coordinator", "expected"), [("[::1]:8476", "127.0.0.1"), ("nowhere:8476", "")]
)
def test_a_coordinator_that_can_not_be_reached_by_ipv4(
    monkeypatch: pytest.MonkeyPatch, coordinator: str, expected: str
) -> None:
    def refuse(host: str) -> str:
        raise socket.gaierror(-2, host)

    names(monkeypatch, None)
    monkeypatch.setattr(network, "local_end", refuse)
    assert address_for_gloo(coordinator) == expected


def test_the_time_limit_fits_into_what_jax_makes_of_it() -> None:
    assert 7 * 24 * 3600 < SILENCE_S < 2**31 / 1000


def joins(address: str = "", heartbeat_timeout_seconds: int = 100) -> None:
    """Take the arguments of `jax.distributed.initialize`, as far as it matters here."""


def joins_without_a_limit(address: str = "") -> None:
    """Take the arguments of a version of JAX that has no limit."""


@pytest.mark.parametrize(
    ("function", "given", "limit"),
    [
        (joins, {}, SILENCE_S),
        (joins, {"address": "a", "heartbeat_timeout_seconds": 100}, SILENCE_S),
        (joins, {"heartbeat_timeout_seconds": 30}, 30),
        (joins_without_a_limit, {}, None),
    ],
)
def test_a_program_keeps_its_own_limit_on_silence(
    function: Callable[..., None], given: dict[str, Any], limit: int | None
) -> None:
    bound = inspect.signature(function).bind(**given)
    tolerate_silence(bound)
    assert bound.arguments.get("heartbeat_timeout_seconds") == limit
