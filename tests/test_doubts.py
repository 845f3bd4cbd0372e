"""What looks odd about launches is noted, and nobody is accused."""

from __future__ import annotations

import mcnb
from mcnb.lockstep.messages import met_nobody, other_lines
from mcnb.lockstep.model import Launch, LaunchRecord, Stand, Verdict

from .conftest import Notebook

ALL = (0, 1, 2, 3)
F = Launch("jit(f)", "f", ALL, ("f32[8]",), ("P('a',)",))
SAME = (
    "It is the same computation, so nothing hung; if these are different steps of the program, "
    "the values are wrong"
)


def made(process: int, line: int | None, launch: Launch = F, at: float = 0.0) -> LaunchRecord:
    return LaunchRecord(process, launch, line, at, at)


def test_one_line_is_not_odd() -> None:
    assert other_lines([made(k, 3, at=at) for at in (0, 1) for k in ALL], 4) == ""
    assert other_lines([], 4) == ""


def test_other_lines_are_noted_once() -> None:
    records = [made(k, 3 if k == 0 else 6, at=0.0) for k in ALL]
    records += [made(k, 6 if k == 0 else 3, at=1.0) for k in ALL]
    assert other_lines(records, 4) == (
        f"process 0 launched jit(f) at line 3, and processes 1-3 at line 6. {SAME}"
    )


def test_what_needs_nobody_may_be_launched_anywhere() -> None:
    own = [made(k, k, Launch("jit(f)", "f", (k,))) for k in ALL]
    assert other_lines(own, 4) == ""


def test_lines_that_are_not_known_say_nothing() -> None:
    assert other_lines([made(0, None), *(made(k, 3) for k in (1, 2, 3))], 4) == ""


def test_who_launched_it_without_communication_is_named() -> None:
    alone = Launch("jit(f)", "other", (2,), ("f32[8]",), ("P()",))
    stands = {0: Stand("waits", F, 3), 2: Stand("finished")}
    records = [made(2, 3, alone), made(3, 3, alone)]
    assert met_nobody(Verdict("missing", stands), records, 4) == (
        "processes 2,3 launched jit(f) at line 3, too, sharded as P() instead of P('a',): that "
        "one does not communicate, and meets nobody"
    )
    assert met_nobody(Verdict("missing", stands), [made(2, 4, alone)], 4) == ""
    assert met_nobody(Verdict("missing", stands), [made(2, 3)], 4) == ""


SETUP = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
k, mesh = jax.process_index(), jax.make_mesh((8,), ("a",))
def spread(spec):
    sharding = NamedSharding(mesh, spec)
    return jax.make_array_from_callback((16,), sharding, lambda i: np.arange(16.0)[i])
x, whole = spread(P("a")), spread(P())
total = jax.jit(lambda v: v.sum())
"""


def test_the_same_computation_in_another_order(cluster: mcnb.Cluster) -> None:
    cluster.run(SETUP).raise_for_errors()
    result = cluster.run(
        "if k == 0:\n    a = total(x)\n    b = total(x * 2)\n"
        "else:\n    b = total(x * 2)\n    a = total(x)"
    )
    assert result.ok
    assert result.verdict is None
    assert result.text() == (
        f"Note: Process 0 launched jit(<lambda>) at line 2, and processes 1-3 at line 5. {SAME}\n"
    )


def test_a_sharding_that_needs_nobody(cluster: mcnb.Cluster) -> None:
    cluster.run(SETUP).raise_for_errors()
    error = str(cluster.run("total(x if k < 2 else whole)").error())
    assert "missing: processes 0,1 wait at line 1 in jit(<lambda>)" in error
    assert (
        "Processes 2,3 launched jit(<lambda>) at line 1, too, sharded as P() instead of P('a',): "
        "that one does not communicate, and meets nobody"
    ) in error


def test_the_note_is_shown(notebook: Notebook) -> None:
    notebook.run(f"%%mcjax\n{SETUP}")
    shown = notebook.run("%%mcjax\nif k:\n    a = total(x)\nelse:\n    a = total(x)").stdout
    assert shown.startswith("Note: Process 0 launched jit(<lambda>) at line 5, and processes 1-3")
