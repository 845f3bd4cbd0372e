"""Addresses of this host."""

from __future__ import annotations

import pytest

import mcnb
from mcnb._system import address_toward, is_own, outward_address


def test_addresses() -> None:
    assert is_own("127.0.0.1")
    assert not is_own("192.0.2.1")
    assert address_toward([]) == address_toward(["127.0.0.1", "localhost"]) == "127.0.0.1"
    assert is_own(outward_address())
    with pytest.raises(mcnb.ClusterError) as unknown:
        address_toward(["no-such-host.invalid"])
    assert str(unknown.value) == (
        "The host name no-such-host.invalid can't be resolved on this host"
    )
