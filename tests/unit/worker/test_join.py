"""The order in which processes get their indices."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcnb.worker.join import Location, in_order


@given(st.permutations(range(6)))
def test_ranks_order_processes(ranks: list[int]) -> None:
    found = [Location("one", "10.0.0.1", rank, "") for rank in ranks]
    assert [found[i].rank for i in in_order(found)] == list(range(6))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=12))
def test_neighbours_share_a_host(hosts: list[int]) -> None:
    """Without ranks, or with those of another job: in the order of the hosts' numbers."""
    found = [Location(f"node{n}", f"10.0.0.{n}", 0, "") for n in hosts]
    order = in_order(found)
    assert sorted(order) == list(range(len(hosts)))
    if len(hosts) > 1:
        assert [hosts[i] for i in order] == sorted(hosts)
