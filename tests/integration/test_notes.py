"""What looks odd about launches is noted, and nobody is accused, on real processes."""

from __future__ import annotations

from pathlib import Path

import mcnb
from tests.conftest import Notebook
from tests.integration.test_run import AT, BEGIN, run
from tests.unit.lockstep.test_independent import SAME_LAUNCHES, SAME_PROGRAM
from tests.unit.lockstep.test_messages_notes import SAME

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
    assert error == (
        "missing: processes 0,1 are waiting in jit(<lambda>), line 1; processes 2,3 finished the "
        "cell after launching it without communication. What differs: processes 2,3 launched "
        "jit(<lambda>) at line 1, too, with argument v sharded as P() instead of P('a',), "
        "but without communication, so these launches do not match. Likely cause: `v` "
        "depends on a value that differs between processes: `total(x if k < 2 else whole)` "
        "(line 1). Hint: all processes must use the same sharding. Create the sharding once, from "
        "one PartitionSpec. The cluster is intact; all variables are kept"
    )


def test_the_note_is_shown(notebook: Notebook) -> None:
    notebook.run(f"%%mcjax\n{SETUP}")
    shown = notebook.run("%%mcjax\nif k:\n    a = total(x)\nelse:\n    a = total(x)").stdout
    note = "Note: Process 0 launched jit(<lambda>) at line 5, and processes 1-3 at line 3"
    last = mcnb.current_cluster().last
    assert last is not None
    made = [(one.process, one.line, one.launch.name, one.began) for one in last.launches]
    assert shown == f"{note}. {SAME}\n", (shown, made)


RATE = "rate = 0.5 if k == 2 else 0.1\nupdate = jax.jit(lambda v: v - rate)\n"


def test_programs_that_differ_without_communication(cluster: mcnb.Cluster) -> None:
    """Nothing waits, and without mcnb there is only a number that is wrong."""
    cluster.run(SETUP).raise_for_errors()

    def said(line: int, cause: str) -> str:
        led = f"Likely cause: {cause} depends on a value that differs between processes: "
        return (
            "Note: Processes 0,1,3 and process 2 launched different programs of jit(<lambda>) "
            f"f32[16] at line {line}{SAME_PROGRAM}\n"
        ).replace("What a program", f"{led}{{}} (line 1). What a program")

    text = cluster.run(f"{RATE}for _ in range(3): x = update(x)").text()
    assert text == said(3, "the lambda").format("`rate = 0.5 if k == 2 else 0.1`")
    power = "power = jax.jit(lambda v, n: v**n, static_argnums=1)(x, 2 + (k == 2))"
    assert cluster.run(power).text() == said(1, "`n`").format(f"`{power}`")
    assert cluster.run("y = jnp.cos(x) if k == 1 else jnp.sin(x)").text() == (
        "Note: At line 1, processes 0,2,3 launched jit(sin) f32[16], and process 1 launched "
        f"jit(cos) f32[16]{SAME_LAUNCHES}\n"
    )
    # A process may compute something for itself.
    assert cluster.run("if k == 1: y = jnp.sin(x)").text() == ""


def test_a_script_whose_programs_differ_without_communication(tmp_path: Path) -> None:
    loop = "for _ in range(3): x = update(x)\nprint(float(jnp.sum(x)) > 0)"
    code, out, err = run(tmp_path, f"{BEGIN}{RATE}{loop}")
    assert (code, out) == (0, [f"[{k}] True" for k in range(3)])
    assert err == [
        "mcnb run: Processes 0,1 and process 2 launched different programs of jit(<lambda>) "
        f"f32[12] at train.py:{AT + 2}{SAME_PROGRAM}".replace(
            "What a program",
            "Likely cause: the lambda depends on a value that differs between processes: "
            f"`rate = 0.5 if k == 2 else 0.1` (train.py:{AT}). What a program",
        )
    ]


IN_TWO_ORDERS = """\
import sys, threading, time
def waits(thread):
    frame = sys._current_frames().get(thread.ident)
    while frame is not None and frame.f_code.co_name != "_hear_or_sleep":
        frame = frame.f_back
    return frame is not None
def largest():
    print(float(jnp.max(x)))
if k == 0:
    thread = threading.Thread(target=largest)
    thread.start()
    while not waits(thread):
        time.sleep(0.001)
total(x)
if k == 0:
    thread.join()
else:
    largest()
"""


def test_threads_that_launch_in_an_order_of_their_own(cluster: mcnb.Cluster) -> None:
    cluster.run(SETUP).raise_for_errors()
    result = cluster.run(IN_TWO_ORDERS)
    assert result.ok
    assert result.text() == (
        "[all 4] 15.0\n"
        "Note: Process 0 launched max (line 8) in one thread before jit(<lambda>) (line 14) in "
        "another, and processes 1-3 the other way around. mcnb had all processes run them in one "
        "order, so the program went on. Without mcnb, the devices may run them in different "
        "orders, and hang or compute wrong results: make all launches that communicate from one "
        "thread, in an order that is the same on all processes\n"
    )
    assert cluster.run("print(float(jnp.max(x)))").text() == "[all 4] 15.0\n"
