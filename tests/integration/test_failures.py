"""Errors, interrupts and deaths: the cell ends, the reason comes first, the next cell works."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import mcnb
from mcnb.output.terminal import without_escapes
from tests.conftest import wait_until
from tests.support.timing import shortest, since

RENEWED = (
    "All 4 processes are being restarted: their variables are lost. To restore them, re-run "
    "the cells that succeeded: %mcjax restart --replay"
)
INTACT = "The cluster is intact; all variables are kept"
# A test that waits longer has hung.
HUNG_S = 120.0
COLLECTIVE = (
    "from jax.experimental import multihost_utils\nmultihost_utils.sync_global_devices('x')"
)


@contextmanager
def when_running(
    cluster: mcnb.Cluster, act: Callable[[], object], word: str = "running"
) -> Iterator[None]:
    """Do something as soon as the cell has said that it is running on every process."""
    processes = cluster._lifetime.processes
    assert processes is not None

    def all_running() -> bool:
        return all(f"{word}\n" in processes.last_words(k).said for k in range(4))

    def wait_and_act() -> None:
        if wait_until(all_running, HUNG_S):
            act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    yield
    thread.join()


def process(k: int) -> psutil.Process:
    return called(f"process {k}")


def called(name: str) -> psutil.Process:
    def outermost() -> list[psutil.Process]:
        alike = [one for one in psutil.Process().children(recursive=True) if one.name() == name]
        # The controller's own children are called as it is.
        return [one for one in alike if one.parent() not in alike]

    # That of a cluster which was lost before may still be on its way out.
    assert wait_until(lambda: len(outermost()) == 1, HUNG_S)
    [found] = outermost()
    return found


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_error_on_one_process(cluster: mcnb.Cluster) -> None:
    result = cluster.run(
        "import jax\n\nif jax.process_index() == 2:\n    1 / 0\nprint('on')", label="7"
    )
    assert not result.ok
    assert list(result.errors) == [2]
    error = result.errors[2]
    assert (error.name, error.message, error.line) == ("ZeroDivisionError", "division by zero", 4)
    assert result.text() == (
        "[0,1,3] on\n"
        "[2] ZeroDivisionError in line 4\n"
        "Cell In[7], line 4\n"
        "      3 if jax.process_index() == 2:\n"
        "----> 4     1 / 0\n"
        "      5 print('on')\n"
        "\n"
        "ZeroDivisionError: division by zero\n"
    )
    with pytest.raises(mcnb.CellError) as raised:
        result.raise_for_errors()
    assert str(raised.value) == "process 2 raised ZeroDivisionError: division by zero (line 4)"
    assert cluster.run("'still here'").text() == "[all 4] 'still here'\n"


def test_equal_errors_are_one_and_free_of_inner_frames(cluster: mcnb.Cluster) -> None:
    cluster.run("def f():\n    return g()", label="1")
    result = cluster.run("def g():\n    raise KeyError('x')\nf()", label="2")
    error = result.error()
    assert error is not None
    assert str(error) == "all 4 processes raised KeyError: 'x' (line 2)"
    shown = without_escapes("\n".join(error.lines))
    assert shown.startswith("[all 4] KeyError in line 2\nCell In[2], line 3\n")
    assert "Cell In[1], line 2, in f\n" in shown
    assert shown.count("KeyError: 'x'") == 1
    for inner in ("mcnb", "ipyparallel", "ipykernel", "IPython", "site-packages"):
        assert inner not in shown


def test_an_error_in_a_callback_is_free_of_inner_frames(cluster: mcnb.Cluster) -> None:
    result = cluster.run(
        "import jax, numpy as np\n"
        "def look(v):\n"
        "    raise ValueError('no such thing')\n"
        "shape = jax.ShapeDtypeStruct((), np.float32)\n"
        "y = jax.jit(lambda v: jax.pure_callback(look, shape, v))(np.float32(1))\n"
        "jax.block_until_ready(y)",
        label="7",
    )
    error = result.error()
    assert error is not None
    # XLA writes the stack into the error, with all that runs the cell.
    before, _, after = without_escapes("\n".join(error.lines)).partition("jax.errors.")
    assert before.startswith("[all 4] JaxRuntimeError in line ")
    kind, *lines = after.rstrip("\n").split("\n")
    assert kind == (
        "JaxRuntimeError: INTERNAL: CpuCallback error calling callback: "
        "Traceback (most recent call last):"
    )
    assert lines[-3:] == [
        "  Cell In[7], line 3, in look",
        "    raise ValueError('no such thing')",
        "ValueError: no such thing",
    ]
    # On the thread of the cell, or on another.
    assert [line for line in lines[:-3] if line.startswith("  File ")] == []


def test_a_syntax_error_is_one_error_and_runs_nowhere(cluster: mcnb.Cluster) -> None:
    result = cluster.run("x = 1\ny = (", label="3")
    assert result.text() == (
        "[all 4] SyntaxError in line 2\n"
        "Cell In[3], line 2\n"
        "    y = (\n"
        "        ^\n"
        "SyntaxError: '(' was never closed\n"
        "No process ran the cell.\n"
    )
    assert not cluster.run("x").ok


def test_lines_are_counted_as_the_notebook_counts(cluster: mcnb.Cluster) -> None:
    for source, line in (("\n  \n1 / 0", 3), ("# comment\n1 / 0", 2), ("\n%time 1 / 0", 2)):
        assert cluster.run(source).errors[0].line == line
        assert cluster.run(source, first_line=2).errors[0].line == line + 1
    assert cluster.run("\n\nx = (").errors[0].line == 3


def test_an_exception_that_is_false_is_an_error(cluster: mcnb.Cluster) -> None:
    source = (
        "class Nothing(Exception):\n    def __bool__(self):\n        return False\nraise Nothing"
    )
    error = cluster.run(source).error()
    assert isinstance(error, mcnb.CellError)
    assert str(error).startswith("all 4 processes raised Nothing (line 4)")


def test_input_is_refused_in_a_sentence(cluster: mcnb.Cluster) -> None:
    for call in ("input()", "import getpass; getpass.getpass()"):
        assert str(cluster.run(call).error()) == (
            "all 4 processes raised RuntimeError: input() can't work in a %%mcjax cell: the cell "
            "runs on several processes and there is one keyboard. Read the value in an ordinary "
            "cell and hand it over: mcnb.current_cluster().push({'name': value}) (line 1)"
        )


@pytest.mark.parametrize(
    "source",
    [
        "import pdb\ntry: 1 / 0\nexcept ZeroDivisionError as e: pdb.post_mortem(e.__traceback__)",
        "import jax\njax.jit(lambda x: (jax.debug.breakpoint(), x + 1)[1])(1).block_until_ready()",
    ],
    ids=["pdb", "jax"],
)
def test_other_debuggers_are_refused_in_a_sentence(cluster: mcnb.Cluster, source: str) -> None:
    result = cluster.run(source)
    assert result.errors
    assert (
        "this debugger can't read commands in a %%mcjax cell. To stop at a line: breakpoint(), or "
        "mcnb.breakpoint(2) on process 2 only. To look around after an error: %mcjax debug"
    ) in result.text()


def test_exit_ends_no_process(cluster: mcnb.Cluster) -> None:
    assert str(cluster.run("exit()").error()) == (
        "all 4 processes raised SystemExit: exit has no effect in a %%mcjax cell. To end all "
        "processes: "
        "%mcjax stop (line 1)"
    )
    assert str(cluster.run("import sys; sys.exit(3)").error()) == (
        "all 4 processes raised SystemExit: 3 (line 1)"
    )
    assert cluster.run("1").ok


def test_one_raises_while_the_others_wait(cluster: mcnb.Cluster) -> None:
    cluster.run(f"{COLLECTIVE}\nkept = 5")

    def attempt() -> float:
        began = time.monotonic()
        result = cluster.run(
            f"import jax\nif jax.process_index() == 1:\n    raise ValueError('mine')\n{COLLECTIVE}"
        )
        took = since(began)
        assert str(result.error()) == (
            "process 1 raised ValueError: mine (line 3). "
            f"Processes 0,2,3 waited at line 5 in sync_global_devices('x'). {INTACT}"
        )
        assert result.text().startswith("[1] ValueError in line 3\n")
        assert cluster.run(f"{COLLECTIVE}\nkept").text() == "[all 4] 5\n"
        return took

    assert shortest(3, attempt) < 3


def test_late_is_not_lost(cluster: mcnb.Cluster) -> None:
    # The others sleep for longer than it takes to see that somebody waits.
    result = cluster.run("""
import jax, time
if jax.process_index() == 0:
    raise ValueError("early")
time.sleep(2)
print("late")
""")
    assert result.text().startswith("[1-3] late\n[0] ValueError in line 4\n")
    assert result.aftermath == ""


@pytest.mark.parametrize(
    "body", ["import time; time.sleep(600)", "while True: pass"], ids=["sleep", "loop"]
)
def test_ctrl_c_reaches_python_and_leaves_the_cluster(cluster: mcnb.Cluster, body: str) -> None:
    cluster.run("kept = 5")
    pressed = []

    def press() -> None:
        pressed.append(time.monotonic())
        ctrl_c()

    def attempt() -> float:
        word = f"running {len(pressed)}"
        with pytest.raises(KeyboardInterrupt), when_running(cluster, press, word):
            cluster.run(f"print('{word}')\n{body}")
        return since(pressed[-1])

    assert shortest(2, attempt) < 2  # with the proof that the cluster is intact
    assert cluster.last is not None
    assert cluster.last.stdout == dict.fromkeys(range(4), f"running {len(pressed) - 1}\n")
    assert cluster.last.aftermath.startswith("All 4 processes")
    assert cluster.last.aftermath.endswith(
        "interrupted. The cluster is intact; all variables are kept"
    )
    assert cluster.run(f"{COLLECTIVE}\nkept").text() == "[all 4] 5\n"


def test_an_interrupt_while_some_wait_leaves_the_cluster(cluster: mcnb.Cluster) -> None:
    cluster.run(f"{COLLECTIVE}\nkept = 5")
    with pytest.raises(KeyboardInterrupt), when_running(cluster, ctrl_c):
        cluster.run(
            f"import jax, time\nprint('running')\nif jax.process_index():\n    time.sleep(600)\n"
            f"{COLLECTIVE}"
        )
    assert cluster.last is not None
    assert cluster.last.verdict is not None
    assert cluster.last.verdict.kind == "stalled"
    assert cluster.last.aftermath.endswith(INTACT)
    assert cluster.run(f"{COLLECTIVE}\nkept").text() == "[all 4] 5\n"


def test_code_that_will_not_be_interrupted(cluster: mcnb.Cluster) -> None:
    with pytest.raises(KeyboardInterrupt), when_running(cluster, ctrl_c):
        cluster.run("print('running', flush=True)\nsum(range(10**13))")
    assert cluster.last is not None
    assert cluster.last.aftermath.endswith(f"did not react to the interrupt. {RENEWED}"), (
        cluster.last.aftermath
    )
    assert cluster.run("1").ok


def test_interrupt_from_another_thread(cluster: mcnb.Cluster) -> None:
    with when_running(cluster, cluster.interrupt):
        result = cluster.run("import time\nprint('running')\ntime.sleep(600)")
    assert result.interrupted
    assert str(result.error()) == (
        "The cell was interrupted. All 4 processes (line 3) were interrupted. "
        "The cluster is intact; all variables are kept"
    ) or str(result.error()).startswith("The cell was interrupted. All 4 processes were")


def test_an_interrupt_without_a_cell_does_nothing(cluster: mcnb.Cluster) -> None:
    cluster.interrupt()
    assert cluster.run("1").ok


@pytest.mark.parametrize(
    ("death", "how"),
    [
        ("import os; os._exit(3)", "process 2 ended with exit code 3"),
        (
            "import os; os.kill(os.getpid(), 9)",
            "process 2 was killed by SIGKILL (sent by a program, or by the system because "
            "memory ran out)",
        ),
        (
            "import ctypes; ctypes.string_at(0)",
            "process 2 was killed by SIGSEGV (a fault in native code) at line 4",
        ),
        (
            "import os; os.abort()",
            "process 2 was killed by SIGABRT (native code called abort()) at line 4",
        ),
    ],
    ids=["exit", "kill", "segfault", "abort"],
)
def test_a_process_that_dies(cluster: mcnb.Cluster, tmp_path: Path, death: str, how: str) -> None:
    # It dies when all have printed.
    result = cluster.run(
        "import jax, os, time; print('before'); "
        f"os.mkdir(f'{tmp_path}/{{jax.process_index()}}')\n"
        f"while len(os.listdir('{tmp_path}')) < 4: time.sleep(0.01)\n"
        f"if jax.process_index() == 2:\n    {death}\n"
        "time.sleep(600)"
    )
    assert list(result.died) == [2]
    assert result.stdout == dict.fromkeys(range(4), "before\n")
    with pytest.raises(mcnb.ClusterError) as died:
        result.raise_for_errors()
    assert str(died.value) == f"{how}. {RENEWED}"
    assert cluster.run("'fresh'").text() == "[all 4] 'fresh'\n"


def test_the_others_wait_for_one_that_dies(cluster: mcnb.Cluster) -> None:
    killed: list[float] = []

    def kill() -> None:
        processes = cluster._lifetime.processes
        assert processes is not None

        def all_there() -> bool:
            waiting = set(processes.referee.waits()) == {0, 1, 3}
            return waiting and processes.last_words(2).said == "last words\n"

        if wait_until(all_there, HUNG_S):
            dies = process(2)
            killed.append(time.monotonic())
            dies.kill()

    def attempt() -> float:
        if cluster.recovering:
            cluster.run("1")
        thread = threading.Thread(target=kill)
        thread.start()
        result = cluster.run(
            "import jax, time\nif jax.process_index() == 2:\n    print('last words')\n"
            f"    time.sleep(600)\n{COLLECTIVE}"
        )
        took = since(killed[-1])
        thread.join()
        verdict = result.verdict
        assert verdict is not None
        assert verdict.kind == "died"
        states = {k: (state.doing, state.line) for k, state in verdict.states.items()}
        assert states == {**dict.fromkeys((0, 1, 3), ("waits", 6)), 2: ("died", None)}
        assert result.stdout[2] == "last words\n"
        assert str(result.error()) == (
            "process 2 was killed by SIGKILL (sent by a program, or by the system because "
            f"memory ran out). {RENEWED}"
        )
        return took

    assert shortest(2, attempt) < 2


def test_all_die_alike(cluster: mcnb.Cluster) -> None:
    pids = [process(k).pid for k in range(4)]
    processes = cluster._lifetime.processes
    assert processes is not None
    # Process 0 holds JAX's coordinator, without which JAX would end the others.
    result = cluster.run(
        f"import jax, os, time\nothers = ['/proc/%d' % pid for pid in {pids[1:]}]\n"
        "while jax.process_index() == 0 and any(map(os.path.exists, others)): time.sleep(0.01)\n"
        "os._exit(1)",
        watcher=lambda pending: wait_until(lambda: len(processes.exits) == 4, HUNG_S),
    )
    assert str(result.error()) == f"all 4 processes ended with exit code 1. {RENEWED}"


def test_the_first_to_die_is_the_cause(cluster: mcnb.Cluster) -> None:
    # Process 0 holds JAX's coordinator: JAX ends the others when it is gone.
    with when_running(cluster, lambda: process(0).kill()):
        result = cluster.run("import time\nprint('running')\ntime.sleep(600)")
    assert list(result.died) == [0]


def test_a_death_between_cells(cluster: mcnb.Cluster) -> None:
    process(3).kill()
    processes = cluster._lifetime.processes
    assert processes is not None
    assert wait_until(lambda: processes.exits, HUNG_S)
    with pytest.raises(mcnb.ClusterError) as died:
        cluster.run("1")
    assert str(died.value) == (
        "Process 3 was killed by SIGKILL (sent by a program, or by the system because "
        "memory ran out) "
        f"after the previous cell, so this cell did not run. {RENEWED}"
    )
    assert cluster.run("'fresh'").text() == "[all 4] 'fresh'\n"


@pytest.mark.parametrize("what", ["controller", "fork server"])
def test_what_connects_the_processes_dies(cluster: mcnb.Cluster, what: str) -> None:
    controller = called("controller")
    helper = controller if what == "controller" else controller.parent()
    processes = cluster._lifetime.processes
    assert processes is not None
    assert helper is not None
    helper.kill()
    assert wait_until(lambda: processes.exits, HUNG_S)
    with pytest.raises(mcnb.ClusterError) as broken:
        cluster.run("1")
    does = "connects" if what == "controller" else "monitors"
    assert str(broken.value).startswith(f"The {what}, which {does} the processes, was killed")
    assert str(broken.value).endswith(
        f" after the previous cell, so this cell did not run. {RENEWED}"
    )
    assert cluster.run("'fresh'").text() == "[all 4] 'fresh'\n"


def test_what_connects_the_processes_dies_in_the_middle_of_a_cell(cluster: mcnb.Cluster) -> None:
    with (
        pytest.raises(mcnb.ClusterError) as broken,
        when_running(cluster, called("controller").kill),
    ):
        cluster.run("import time\nprint('running')\ntime.sleep(600)")
    assert str(broken.value) == (
        "The controller, which connects the processes, was killed by SIGKILL (sent by a "
        f"program, or by the system because memory ran out). {RENEWED}"
    )
    assert cluster.run("'fresh'").text() == "[all 4] 'fresh'\n"
