"""The debugger on processes: after an error, a divergence, a breakpoint; and a person who types."""

from __future__ import annotations

import re
import threading
import time

import pytest

import mcnb
from mcnb.output.terminal import without_escapes
from tests.conftest import Notebook
from tests.support.people import at_a_debugger

FAILS = (
    "rows = [1, 2, 3 + k]\n"
    "def scale(rows, by):\n"
    "    return rows[-1] / by\n"
    "if k == 2: scale(rows, k - 2)\n"
)
ALONE = (
    "*** In the debugger a process runs alone: a computation that needs other processes can't "
    "run. This process's part of an array x: x.addressable_shards[0].data\n"
)


@pytest.fixture
def failing(prepared: mcnb.Cluster) -> mcnb.Cluster:
    prepared.run("total = jax.jit(jnp.sum)").raise_for_errors()
    return prepared


def fail(cluster: mcnb.Cluster) -> None:
    assert set(cluster.run(FAILS, label="5").errors) == {2}


def test_after_an_error(failing: mcnb.Cluster) -> None:
    fail(failing)
    assert failing.debug("where").text == (
        "  <In[5]>(4)<module>()\n-> if k == 2: scale(rows, k - 2)\n"
        "> <In[5]>(3)scale()\n-> return rows[-1] / by\n"
    )
    assert failing.debug("p rows, by").text == "([1, 2, 5], 0)\n"
    assert failing.debug("p k", process=2).text == "2\n"
    # The others ended the cell without an error, and the cluster goes on.
    with pytest.raises(mcnb.ClusterError) as refused:
        failing.debug("where", process=1)
    assert str(refused.value) == (
        "There is no error to look at on process 1: the last cell ended without one there, or its "
        "variables were restored since"
    )
    assert failing.run("print(float(total(x)))").ok
    with pytest.raises(mcnb.ClusterError) as refused:
        failing.debug("where")
    assert str(refused.value) == (
        "There is no error to look at: the last cell ended without one on any process"
    )


def test_a_cell_that_no_process_ran(failing: mcnb.Cluster) -> None:
    fail(failing)
    assert set(failing.run("x = (").errors) == set(range(4))
    with pytest.raises(mcnb.ClusterError) as refused:
        failing.debug("where")
    assert str(refused.value) == "There is no error to look at: no process ran the last cell"


def test_what_communicates_is_refused(failing: mcnb.Cluster) -> None:
    fail(failing)
    assert failing.debug("p total(x)").text == ALONE
    assert failing.debug("total(x)").text == ALONE
    assert failing.debug("p len(x.addressable_shards)").text == "2\n"
    assert failing.debug("p x").text == "Array(shape=(8, 4), dtype=float32)\n"
    assert failing.run("print(float(total(x)))").ok


def test_after_a_divergence(failing: mcnb.Cluster) -> None:
    result = failing.run("def step(x):\n    return total(x)\nif k == 1:\n    y = step(x)")
    assert result.verdict is not None
    assert failing.debug("p k").text == "1\n"
    where = failing.debug("where").text
    assert "(2)step()\n-> return total(x)\n" in where
    # Neither mcnb nor what runs the cell.
    assert not any(word in where for word in ("mcnb", "IPython", "ipykernel", "site-packages"))
    assert failing.run("print(float(total(x)))").ok


def test_a_breakpoint(failing: mcnb.Cluster) -> None:
    result = failing.run("def step(x):\n    breakpoint()\n    return total(x)\nstep(x)", label="6")
    error = result.error()
    assert error is not None
    assert str(error) == (
        "all 4 processes raised RuntimeError: breakpoint() ends a %%mcjax cell, because nobody "
        "can type on a process while others may wait for it. To look around at this line: "
        "%mcjax debug (line 2)"
    )
    for k in range(4):
        assert failing.debug("where", k).text == (
            "  <In[6]>(4)<module>()\n-> step(x)\n> <In[6]>(2)step()\n-> breakpoint()\n"
        )
        assert failing.debug("p k", k).text == f"{k}\n"
    turned_off = "import os\nos.environ['PYTHONBREAKPOINT'] = '0'\nbreakpoint()\n"
    assert failing.run(f"{turned_off}del os.environ['PYTHONBREAKPOINT']").ok


def test_a_command_that_never_ends_is_stopped(failing: mcnb.Cluster) -> None:
    fail(failing)

    def stop() -> None:
        while failing._execution is None:
            time.sleep(0.01)
        failing.interrupt()

    stopping = threading.Thread(target=stop)
    stopping.start()
    try:
        answer = failing.debug("__import__('time').sleep(600)", 2)
        assert answer.text == "*** KeyboardInterrupt\n"
    finally:
        stopping.join()
    assert failing.debug("p k", 2).text == "2\n"
    assert failing.run("print(float(total(x)))").ok


def test_a_process_that_is_killed(failing: mcnb.Cluster) -> None:
    fail(failing)
    failing.debug("where")
    with pytest.raises(mcnb.ClusterError) as ended:
        failing.debug("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 2)
    assert str(ended.value).startswith("process 2 was killed by SIGKILL")
    assert failing.run("1").ok
    with pytest.raises(mcnb.ClusterError):
        failing.debug("where", 2)


def test_variables_are_freed_when_the_next_cell_begins(failing: mcnb.Cluster) -> None:
    failing.run(
        "import weakref\n"
        "class Big: pass\n"
        "def work():\n    big = Big()\n    refs.append(weakref.ref(big))\n    1 / 0\n"
        "refs = []\nwork()"
    )
    failing.debug("p big", 3)
    assert failing.run("print([ref() for ref in refs])").stdout[3] == "[None]\n"


def test_many_sessions(failing: mcnb.Cluster) -> None:
    for number in range(10):
        fail(failing)
        for line in ("where", "up", "p rows", *["quit"] * (number % 2)):
            failing.debug(line)
    assert failing.run("print(float(total(x)))").ok


def test_without_anybody_who_types(empty_notebook: Notebook) -> None:
    empty_notebook.run("%mcjax start -n 2 -d 1")
    empty_notebook.error("%%mcjax\ndef f(a):\n    return 1 / a\nf(0)")
    assert empty_notebook.error("%mcjax debug") == (
        "OptionError: %mcjax debug: nobody can type here. Give the command of the debugger with "
        "it, for example: %mcjax debug where"
    )
    assert empty_notebook.run("%mcjax debug -p 1 p a").stdout == "0\n"
    up = re.sub(r"In\[\d+\]", "In[.]", empty_notebook.run("%mcjax debug up").stdout)
    assert up == "> <In[.]>(4)<module>()\n-> f(0)\n"
    within = empty_notebook.run("%%mcjax\n%debug").stderr
    assert within == "[all 2] To look around in the frames of a cell's error: %mcjax debug\n"


@pytest.mark.parametrize("command", ["%mcjax debug", "%debug"])
def test_a_person_types(command: str) -> None:
    said = at_a_debugger(
        ["%load_ext mcnb", "%mcjax start -n 2 -d 1", "%%mcjax\ndef f(a):\n    1 / a\nf(0)"],
        command,
        ["p a", "up", "p f(1)", "next", "q"],
    )
    shown = without_escapes("".join(said))
    assert shown == (
        "  <In[3]>(4)<module>()\n-> f(0)\n> <In[3]>(3)f()\n-> 1 / a\n"
        "0\n> <In[3]>(4)<module>()\n-> f(0)\nNone\n"
        "The cell has ended with this error and can't go on. Look around: where, up, down, list, "
        "args, p EXPRESSION, pp EXPRESSION, or any line of Python. To leave: quit\n"
    )
