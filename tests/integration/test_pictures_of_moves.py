"""What moves from one sharding to another, against a count of every element, on real processes."""

from __future__ import annotations

import mcnb


def test_what_xla_moves_it_with(cluster: mcnb.Cluster) -> None:
    result = cluster.run(
        "import jax, mcnb\nfrom jax.sharding import NamedSharding, PartitionSpec as P\n"
        "mesh = jax.make_mesh((4, 2), ('a', 'b'))\n"
        "def at(*spec): return NamedSharding(mesh, P(*spec))\n"
        "for before, after in ((at('a'), at()), (at('a'), at(None, 'a')), (at(), at('a'))):\n"
        "    print(mcnb.picture(before, after, (8, 4)).text().splitlines()[-1])\n"
    )
    assert set(result.stdout.values()) == {
        "XLA moves it with 1 all-gather.\nXLA moves it with 1 all-to-all.\n"
        "XLA needs no collective for it.\n"
    }
    assert result.launches == ()
