"""Completion, tooltips and `name?` in `%%mcjax` cells, on real processes."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter

import mcnb
from mcnb.cluster import cluster as clusters
from mcnb.notebook.assistance import Assistance
from mcnb.notebook.parsing import first_process
from mcnb.output.terminal import without_escapes
from mcnb.worker.introspection import complete
from tests.conftest import Notebook, once, wait_until

# IPython is the same on each Python.
pytestmark = once

SETUP = """
import time
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
k = jax.process_index()
mesh = jax.make_mesh((4, 2), ("a", "b"))
x = jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, P("a", "b")))
params = {"w": x, "steps": 3}
class Slow:
    asked = 0
    def __dir__(self):
        time.sleep(self.asked)
        return ["early"]
slow = Slow()
if k == 2: only_on_2 = k
"""
CARD = (
    "Type:     jax.Array\n"
    "Shape:    (8, 4)\n"
    "Dtype:    float32\n"
    "Sharding: P('a', 'b') on the mesh a=4, b=2\n"
    "Devices:  8, of 4 processes\n"
    "Bytes:    128, of which 16 on each device"
)


@pytest.fixture
def prepared_notebook(notebook: Notebook) -> Notebook:
    assert notebook.run(f"%%mcjax\n{SETUP}").success
    return notebook


def completions(notebook: Notebook, cell: str) -> list[str]:
    with provisionalcompleter():
        found = notebook.shell.Completer.completions(cell, len(cell))
        return [cell[: one.start] + one.text for one in found]


def test_names_of_the_processes_are_completed(prepared_notebook: Notebook) -> None:
    prepared_notebook.shell.user_ns["params_of_the_kernel"] = 1
    before = mcnb.current_cluster().last
    for typed, completed in {
        "para": ["params"],
        "y = x.shar": ["y = x.sharding"],
        "x.sharding.mesh.axis_n": ["x.sharding.mesh.axis_names"],
        "a = 1\nparams['w'].sharding.sp": ["a = 1\nparams['w'].sharding.spec"],
        "only_on_": [],
    }.items():
        found = completions(prepared_notebook, f"%%mcjax\n{typed}")
        assert found == [f"%%mcjax\n{text}" for text in completed]
    assert completions(prepared_notebook, "%%mcjax -p 2,3\nonly_on_") == [
        "%%mcjax -p 2,3\nonly_on_2"
    ]
    assert completions(prepared_notebook, "params_of_") == ["params_of_the_kernel"]
    assert mcnb.current_cluster().last is before


def test_what_may_follow_a_magic(prepared_notebook: Notebook) -> None:
    """Nothing of IPython's is offered beside it."""
    prepared_notebook.shell.user_ns["params_of_the_kernel"] = 1
    for typed, completed in {
        "%mcjax comp": ["%mcjax compare"],
        "%mcjax restart --": ["%mcjax restart --keep-going", "%mcjax restart --replay"],
        "%mcjax auto ": ["%mcjax auto off", "%mcjax auto on"],
        "%mcjax compare para": ["%mcjax compare params"],
        "%mcjax compare params['w'].sharding.sp": ["%mcjax compare params['w'].sharding.spec"],
        "%mcjax pull only_on": [],
        "%mcjax push params_": ["%mcjax push params_of_the_kernel"],
        "%%mcjax --unch": ["%%mcjax --unchecked"],
    }.items():
        assert sorted(completions(prepared_notebook, typed)) == completed, typed


@pytest.mark.usefixtures("prepared_notebook")
def test_arrays_are_described() -> None:
    shell = SimpleNamespace(enable_html_pager=True)
    assistance = Assistance(shell, first_process, lambda cell: False)
    reply = assistance.inspect(lambda *_: None, "%%mcjax\ny = x + 1", 13)
    assert reply == {"status": "ok", "data": {"text/plain": CARD}, "metadata": {}, "found": True}
    reply = assistance.inspect(lambda *_: None, "%%mcjax -p 3\nonly_on_2", 22)
    assert reply["found"] is False


def test_question_marks_print(prepared_notebook: Notebook) -> None:
    indented = CARD.replace("\n", "\n        ")
    assert prepared_notebook.run("%%mcjax\nx?").stdout == f"[all 4] {indented}\n"
    shown = without_escapes(prepared_notebook.run("%%mcjax -p 0,1\njnp.sum?").stdout)
    assert shown.startswith("[0,1] Signature:\n      jnp.sum(\n          a: 'ArrayLike',\n")
    shown = without_escapes(prepared_notebook.run("%%mcjax\nk?").stdout)
    assert "[2] Type:        int\n    String form: 2\n" in shown
    assert prepared_notebook.run("%%mcjax\nnothing?").stdout == (
        "[all 4] Object `nothing` not found.\n"
    )
    assert prepared_notebook.run("%%mcjax\njnp.cums*?").stdout == "[all 4] jnp.cumsum\n"


def test_a_process_that_does_not_answer_is_not_asked_again(prepared_notebook: Notebook) -> None:
    cluster = mcnb.current_cluster()
    cluster.run("if k == 1: Slow.asked = 1.5").raise_for_errors()
    found = cluster.ask_idle(complete, "slow.ea", 7, processes=[0, 1], within_s=0.5)
    assert found.keys() <= {0}
    began = time.monotonic()
    assert cluster.ask_idle(complete, "para", 4, processes=[0], within_s=60) == {}
    assert time.monotonic() - began < 1
    assert cluster.run("1").text() == "[all 4] 1\n"  # which waits for the answer, as it is in line
    assert cluster.ask_idle(complete, "para", 4, processes=[0], within_s=60).keys() == {0}


def test_nobody_is_asked_while_a_cell_runs(prepared_notebook: Notebook) -> None:
    cluster = mcnb.current_cluster()
    cell = threading.Thread(target=cluster.run, args=("x.sum(); time.sleep(1)",))
    cell.start()
    assert wait_until(lambda: "running a cell" in cluster.status())
    assert cluster.ask_idle(complete, "para", 4, processes=[0], within_s=60) == {}
    cell.join()
    assert completions(prepared_notebook, "%%mcjax\npara") == ["%%mcjax\nparams"]


def test_a_cluster_without_that_process(prepared_notebook: Notebook) -> None:
    cluster = mcnb.current_cluster()
    assert cluster.ask_idle(complete, "para", 4, processes=[4], within_s=60) == {}
    assert mcnb.Cluster().ask_idle(complete, "para", 4, processes=[0], within_s=60) == {}


def test_where_a_name_is(prepared_notebook: Notebook) -> None:
    assert prepared_notebook.run("params['w']").stderr == (
        "Hint: params is defined on all 4 processes, but not in the notebook kernel. To use it, "
        "begin the cell with %%mcjax\n"
    )
    assert prepared_notebook.run("only_on_2 + 1").stderr == (
        "Hint: only_on_2 is defined on process 2, but not in the notebook kernel. To use it, begin "
        "the cell with %%mcjax\n"
    )
    for cell in ("nobody_made_me", "1 / 0", "1", "%%mcjax\nnobody_made_me", "int('a')"):
        assert prepared_notebook.run(cell).stderr == ""


def test_where_a_name_is_for_a_cell_of_another_magic(prepared_notebook: Notebook) -> None:
    prepared_notebook.run("%mcjax auto on")
    assert prepared_notebook.run("%%time\nparams['w']").stderr == (
        "Hint: params is defined on all 4 processes, but not in the notebook kernel, where cells "
        "that begin with %%time run. To use it, begin the cell with %%mcjax\n"
    )


def test_a_name_that_is_misspelled(prepared_notebook: Notebook) -> None:
    shown = prepared_notebook.run("%%mcjax\nparms['w']").stdout.splitlines()
    assert shown[-2:] == [
        "Hint: did you mean params? If not, first run the %%mcjax cell that",
        "defines parms",
    ]


@pytest.mark.parametrize("cell", ["%%mcjax\nonly_on_2", "%%mcjax\nonly_on_2; x.sum()"])
def test_a_name_that_some_processes_have(prepared_notebook: Notebook, cell: str) -> None:
    shown = prepared_notebook.run(cell).stdout
    assert shown[shown.index("\nHint: ") :].replace("\n", " ").strip() == (
        "Hint: only_on_2 is defined on process 2, and not on processes 0,1,3. Assign it on all "
        "processes: under no condition that depends on the process, and in a cell without -p"
    )


@pytest.mark.parametrize("after", ["", "\njnp.max(x)"])
def test_an_array_that_is_one_process_own(prepared_notebook: Notebook, after: str) -> None:
    cell = f"%%mcjax\nv = jnp.ones((8, 4)) if k == 1 else x\ny = jnp.sum(v){after}"
    shown = prepared_notebook.run(cell).stdout.replace("\n", " ")
    assert shown.count("Hint: ") == 1
    assert (
        " Hint: `v` is a process-local array on process 1, where a computation with it involves no "
        "other process; on processes 0,2,3, it spans processes. Create `v` in the same way on all "
        "processes The cluster is intact; all variables are kept"
    ) in shown.replace("  ", " ")


def test_comments_above_the_magic(prepared_notebook: Notebook) -> None:
    assert prepared_notebook.run("# One.\n\n# Two.\n%%mcjax -p 1\nprint(k)").stdout == "[1] 1\n"
    error = prepared_notebook.error("# Fails.\n%%mcjax\n1 / 0")
    assert error == "CellError: all 4 processes raised ZeroDivisionError: division by zero (line 3)"


@pytest.fixture
def eight() -> Iterator[mcnb.Cluster]:
    with mcnb.Cluster(processes=8, devices_per_process=1) as cluster:
        before, clusters.current = clusters.current, cluster
        yield cluster
        clusters.current = before


@pytest.mark.thorough("many requests")
def test_many_requests_beside_cells(eight: mcnb.Cluster, shell: Any) -> None:
    """500 requests, half of them while cells run: no error, no launch, no delay, no verdict."""
    eight.run(SETUP.replace("(4, 2)", "(8, 1)")).raise_for_errors()
    over = threading.Event()
    cells: list[mcnb.Result] = []

    def run_cells() -> None:
        while not over.is_set():
            cells.append(eight.run("float(jnp.sum(x))"))
            time.sleep(0.02)

    thread = threading.Thread(target=run_cells)
    thread.start()
    answered, took = 0, []
    for _ in range(500):
        began = time.monotonic()
        asked = "x.sharding.mesh.sh"
        found = eight.ask_idle(complete, asked, len(asked), processes=[0], within_s=5).get(0)
        if found:
            answered += 1
            took.append(time.monotonic() - began)
            assert [one.text for one in found] == ["shape", "shape_tuple"]
        time.sleep(0.005)
    over.set()
    thread.join()
    print(f"{answered} of 500 answered, in {1e3 * statistics.median(took):.1f} ms")
    assert answered > 20
    assert {one.text() for one in cells} == {"[all 8] 32.0\n"}
    assert {len(one.launches) for one in cells} == {8}
