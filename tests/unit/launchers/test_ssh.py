"""Hosts for ssh, and errors of ssh with what to do about each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.launchers.ssh import _why_not, spread


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            "Host key verification failed",
            "ssh does not know the key of the host one:22 (Host key verification failed). Log in "
            "once and accept the key: ssh -p 22 one",
        ),
        (
            "ada@one: Permission denied (publickey)",
            "The host one:22 refused a login without a password: ada@one: Permission denied "
            "(publickey). Set up a key with ssh-copy-id, and try: ssh -o BatchMode=yes -p 22 one",
        ),
        (
            "Connection refused",
            "The host one:22 can't be reached: Connection refused. Try: ssh -o BatchMode=yes -p 22 "
            "one",
        ),
    ],
)
def test_why_a_host_is_not_reached(said: str, message: str) -> None:
    assert _why_not("one:22", said, "-p 22 one") == message


@given(st.integers(1, 40), st.integers(1, 9))
def test_processes_are_spread_evenly(processes: int, hosts: int) -> None:
    counts = spread(processes, [f"h{i}" for i in range(hosts)])
    assert sum(counts.values()) == processes
    assert len(counts) == min(processes, hosts)
    assert max(counts.values()) - min(counts.values()) <= 1


@given(st.integers(1, 20), st.lists(st.sampled_from("abc"), min_size=1, max_size=6))
def test_a_host_that_is_named_twice_gets_twice_as_many(processes: int, hosts: list[str]) -> None:
    counts = spread(processes, hosts)
    assert sum(counts.values()) == processes
    for host, count in counts.items():
        named = hosts.count(host)
        assert processes // len(hosts) * named <= count <= -(-processes // len(hosts)) * named
