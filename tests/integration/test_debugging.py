"""The debugger on processes: after an error, a divergence, a breakpoint; and a person who types."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import mcnb
from mcnb.cluster.conversation import INTRODUCTION, SEVERAL
from mcnb.output.terminal import without_escapes
from tests.conftest import Notebook, wait_until
from tests.support.clients import HANG_S
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
        "all 4 processes raised RuntimeError: breakpoint() ends this cell, because nobody can "
        "type here. To look around at this line: %mcjax debug (line 2)"
    )
    for k in range(4):
        assert failing.debug("where", k).text == (
            "  <In[6]>(4)<module>()\n-> step(x)\n> <In[6]>(2)step()\n-> breakpoint()\n"
        )
        assert failing.debug("p k", k).text == f"{k}\n"
    turned_off = "import os\nos.environ['PYTHONBREAKPOINT'] = '0'\nbreakpoint()\n"
    assert failing.run(f"{turned_off}del os.environ['PYTHONBREAKPOINT']").ok


def test_a_command_that_never_ends_is_stopped(failing: mcnb.Cluster, tmp_path: Path) -> None:
    fail(failing)
    began = tmp_path / "began"

    def stop() -> None:
        wait_until(began.exists, HANG_S)
        failing.interrupt()

    stopping = threading.Thread(target=stop)
    stopping.start()
    try:
        command = f"(open({str(began)!r}, 'w').close(), __import__('time').sleep(600))"
        answer = failing.debug(command, 2)
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
    assert empty_notebook.run("%mcjax debug p a -p 1").stdout == "0\n"
    up = re.sub(r"In\[\d+\]", "In[.]", empty_notebook.run("%mcjax debug up").stdout)
    assert up == "> <In[.]>(4)<module>()\n-> f(0)\n"
    within = empty_notebook.run("%%mcjax\n%debug\npass").stderr
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


class Typist:
    """A person who answers each stop with the next line, and sees what was printed before."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.seen: list[tuple[int, str]] = []

    def __call__(self, process: int, text: str) -> str:
        self.seen.append((process, text))
        return self.lines.pop(0)


STEP = "def step(x):\n    {}\n    y = total(x)\n    print('done')\n    return float(y)\nstep(x)"


def test_one_process_stops_and_the_others_wait_for_it(failing: mcnb.Cluster) -> None:
    typist = Typist("where", "p k", "p total(x)", "next", "next", "p float(y)", "continue")
    result = failing.run(STEP.format("if k == 2: breakpoint()"), label="7", debugger=typist)
    assert result.ok
    assert result.text() == "[all 4] done\n[all 4] 496.0\n"
    assert [process for process, _ in typist.seen] == [2] * 7
    at_2 = "> <In[7]>(2)step()\n-> if k == 2: breakpoint()\n"
    assert [text for _, text in typist.seen] == [
        f"{INTRODUCTION}{at_2}",
        f"  <In[7]>(6)<module>()\n-> step(x)\n{at_2}",
        "2\n",
        ALONE,
        "> <In[7]>(3)step()\n-> y = total(x)\n",
        "> <In[7]>(4)step()\n-> print('done')\n",
        "496.0\n",
    ]


def test_all_processes_stop(failing: mcnb.Cluster) -> None:
    typist = Typist("process 3", "p k", "continue all")

    def ask(process: int, text: str) -> str:
        if not typist.seen:  # until all of them have stopped
            execution = failing._execution
            assert execution is not None
            at_end = time.monotonic() + 60
            while not all(pending.pause(k).number for k in range(4)):
                assert time.monotonic() < at_end
                pending.wait(0.05)
        return typist(process, text)

    pending: Any = None

    def watch(one: Any) -> None:
        nonlocal pending
        pending = one

    source = STEP.format("breakpoint()")
    result = failing.run(source, label="7", debugger=ask, watcher=watch)
    assert result.ok
    assert result.text() == "[all 4] done\n[all 4] 496.0\n"
    stopped = "> <In[7]>(2)step()\n-> breakpoint()\n"
    seen = [(process, text.replace(SEVERAL, "")) for process, text in typist.seen]
    assert seen == [(0, f"{INTRODUCTION}{stopped}"), (3, stopped), (3, "3\n")]


def test_a_process_that_waits_for_stopped_ones(failing: mcnb.Cluster) -> None:
    typist = Typist("next", "next", "c", "p 'last'", "c")
    source = STEP.format("import mcnb; mcnb.breakpoint('0-1')")
    result = failing.run(source, label="7", debugger=typist)
    assert result.ok
    (_, first), (_, second), (third, told), (last, after), (_, again) = typist.seen
    assert first.startswith(INTRODUCTION)
    assert second == "> <In[7]>(3)step()\n-> y = total(x)\n"
    waits = "process 0 is waiting for others in jit(sum), line 3\n"
    stopped = "> <In[7]>(2)step()\n-> import mcnb; mcnb.breakpoint('0-1')\n"
    assert (third, told) == (1, f"{waits}{stopped}")
    assert (last, after) == (0, "> <In[7]>(4)step()\n-> print('done')\n")
    assert again == "'last'\n"


def test_a_stop_in_the_debugger_ends_the_cell(failing: mcnb.Cluster) -> None:
    for line in ("quit", "quit()", KeyboardInterrupt, EOFError):

        def ask(process: int, text: str, line: Any = line) -> str:
            if isinstance(line, str):
                return line
            raise line

        result = failing.run(STEP.format("if k == 1: breakpoint()"), debugger=ask)
        assert result.interrupted
        assert result.aftermath == (
            "All 4 processes (lines 2, 3) were interrupted. The cluster is intact; all variables "
            "are kept"
        )
        assert failing.run("print(float(total(x)))").text() == "[all 4] 496.0\n"


def test_a_verdict_reaches_the_debugger(failing: mcnb.Cluster) -> None:
    typist = Typist("next", "next", "next", "p k", "c")
    source = "if k == 1: breakpoint()\nif k != 1: total(x)\njax.jit(jnp.max)(x)"
    result = failing.run(source, label="7", debugger=typist)
    assert result.verdict is not None
    assert result.verdict.kind == "mismatch"
    assert typist.seen[3][1].startswith(
        "mcnb.errors.LockstepError: mismatch: processes 0,2,3 are waiting in jit(sum) f32[8,4], "
        "line 2; process 1 is waiting in jit(max) f32[8,4], line 3. Hint: line 2 runs only if "
    )
    assert typist.seen[4] == (1, "1\n")
    assert failing.run("print(float(total(x)))").ok


def test_breakpoints_are_removed_without_a_question(failing: mcnb.Cluster) -> None:
    typist = Typist("b 4", "cl", "c")
    source = "breakpoint() if k == 2 else None\nfor i in range(2):\n    y = i\nz = y"
    result = failing.run(source, label="7", debugger=typist)
    assert result.ok, result.text()
    assert typist.seen[2][1] == "All breakpoints are removed\n"


def test_a_process_that_is_killed_in_the_debugger(failing: mcnb.Cluster) -> None:
    typist = Typist("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    result = failing.run(STEP.format("if k == 2: breakpoint()"), debugger=typist)
    assert [*result.exits] == [2]
    assert failing.run("1").ok


def test_a_cell_that_goes_on_is_watched_again(failing: mcnb.Cluster) -> None:
    typist = Typist("continue")
    watched: list[int | None] = []

    def watch(pending: Any) -> None:
        if typist.seen:
            watched.append(pending.progress(2).line)

    source = STEP.format("if k == 2: breakpoint()") + "\nimport time; time.sleep(1)"
    assert failing.run(source, watcher=watch, debugger=typist).ok
    assert 7 in watched


def test_time_in_the_debugger_does_not_count(failing: mcnb.Cluster) -> None:
    typist = Typist("c")

    def ask(process: int, text: str) -> str:
        time.sleep(1.5)  # longer than the limit
        return typist(process, text)

    result = failing.run(STEP.format("if k == 2: breakpoint()"), debugger=ask, timeout=1)
    assert result.ok


def test_an_error_of_the_callers_debugger(failing: mcnb.Cluster) -> None:
    def ask(process: int, text: str) -> str:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        failing.run(STEP.format("if k == 1: breakpoint()"), debugger=ask)
    assert failing.last is not None
    assert failing.last.interrupted
    assert failing.run("print(float(total(x)))").ok


@pytest.mark.parametrize(
    "source",
    [
        "def g():\n    yield 1\n    breakpoint()\n    yield 2\nlist(g())",
        "async def f():\n    import pdb\n    pdb.set_trace()\n    return [1, 2]\nawait f()",
        "@jax.jit\ndef f():\n    breakpoint()\n    return jnp.arange(2) + 1\nf().tolist()",
        "from IPython.core.debugger import set_trace\n\nset_trace()\nrows = [1, 2]\nrows",
    ],
)
def test_stepping_past_the_end_of_a_cell_ends_it(failing: mcnb.Cluster, source: str) -> None:
    typist = Typist("n", "n", "n")
    result = failing.run(source, processes=2, label="7", debugger=typist)
    assert result.text() == "[2] [1, 2]\n"
    lines = source.splitlines()
    names = {"def g():": "g", "async def f():": "f", "@jax.jit": "f"}
    function = names.get(lines[0], "<module>")
    places = [f"> <In[7]>({n}){function}()\n-> {lines[n - 1].strip()}\n" for n in (3, 4)]
    if function == "<module>":
        places.append("> <In[7]>(5)<module>()\n-> rows\n")
    if lines[0] == "@jax.jit":
        places.append(
            "--Return--\n> <In[7]>(4)f()->JitTracer(int32[2])\n-> return jnp.arange(2) + 1\n"
        )
    assert [text.removeprefix(INTRODUCTION) for _, text in typist.seen] == places
    assert failing.run("print(float(total(x)))").ok


def test_nothing_of_the_debugger_is_left(failing: mcnb.Cluster) -> None:
    names = "sorted(name for name in globals() if name.startswith('__'))"
    before = failing.run(names).text()
    typist = Typist("n", "n", "b 4", "c", "c")
    source = "breakpoint() if k == 0 else None\nfor i in range(2):\n    float(total(x))\n1 / k"
    result = failing.run(source, debugger=typist)
    assert set(result.errors) == {0}
    assert failing.run(names).text() == before
    assert failing.run("import sys; print(sys.gettrace())").text() == "[all 4] None\n"


@pytest.mark.parametrize("kind", ["post-mortem", "continue", "quit", "step", "late"])
def test_sessions_of_each_kind(failing: mcnb.Cluster, kind: str) -> None:
    """They follow each other, and the processes can compute together after each of them."""
    for number in range(6):
        k = number % 4
        if kind == "post-mortem":
            fail(failing)
            failing.debug("where")
        else:
            lines = {
                "continue": ["p x", "c"],
                "quit": ["p x", "q"],
                "step": ["n"] * 3 + ["c"],
                "late": ["!import time; time.sleep(0.5)", "c"],
            }[kind]
            result = failing.run(STEP.format(f"if k == {k}: breakpoint()"), debugger=Typist(*lines))
            assert result.interrupted == (kind == "quit"), number
        assert failing.run("print(float(total(x)))").text() == "[all 4] 496.0\n", number


def test_a_person_stops_at_a_breakpoint() -> None:
    said = at_a_debugger(
        ["%load_ext mcnb", "%mcjax start -n 2 -d 1", "%%mcjax\nimport mcnb, jax"],
        "%%mcjax\nk = jax.process_index()\nmcnb.breakpoint(1)\nprint('k', k)",
        ["p k", "n", "c"],
    )
    assert without_escapes("".join(said)) == (
        f"{INTRODUCTION}> <In[4]>(3)<module>()\n-> mcnb.breakpoint(1)\n1\n"
        "> <In[4]>(4)<module>()\n-> print('k', k)\n[0] k 0\n[1] k 1\n"
    )
