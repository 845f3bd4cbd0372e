"""What can't be drawn gets a sentence, not a trace, on real processes."""

from __future__ import annotations

import subprocess
import sys

LEFT = """
import jax, numpy as np, mcnb
from jax.extend import backend
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((1,), ("a",))
sharding = NamedSharding(mesh, P("a"))
x = jax.device_put(np.ones(4), sharding)
backend.clear_backends()
for given in ((mesh,), (x,), (sharding, (4,))):
    try:
        mcnb.show(*given)
    except mcnb.PictureError as error:
        print(error)
mcnb.show(jax.make_mesh((1,), ("a",)))
"""


SENTENCE = (
    "The {0} contains devices that no longer exist: JAX was initialized again in this process, "
    "for example by a heal. Create the {0} again, from jax.devices()"
)


def test_devices_of_a_system_that_was_left() -> None:
    run = subprocess.run(
        [sys.executable, "-c", LEFT], capture_output=True, text=True, check=True, timeout=120
    )
    lines = run.stdout.splitlines()
    assert lines[:4] == [
        *(SENTENCE.format(what) for what in ("mesh", "array", "sharding")),
        "Mesh 'a': 1",
    ]
