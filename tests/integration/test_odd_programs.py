"""Programs with signal handlers, forks and closed streams: the check goes on as promised."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

import mcnb
from mcnb.lockstep.client import Client
from mcnb.lockstep.server import Server
from mcnb.lockstep.source import Place
from tests.conftest import wait_until
from tests.integration.test_divergences import NEXT, SETUP
from tests.support.clients import F, G, Learner

HANDLER = """
import signal, sys, mcnb
from pathlib import Path
def waits(thread):
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code.co_name != "_hear_or_sleep":
        frame = frame.f_back
    return frame is not None
sending = threading.RLock()  # guards that no signal is sent after its handler was called
def when_waiting(handler):  # calls a handler while the main thread waits for a launch
    def handle(*_):
        with sending:
            if Path(marker).exists(): return
            Path(marker).touch()
        handler()
    def watch():
        # Again and again: a signal at the start of a blocking call is not handled until its end.
        while not Path(marker).exists():
            with sending:
                if waits(threading.main_thread().ident) and not Path(marker).exists():
                    signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
            time.sleep(0.005)
    signal.signal(signal.SIGALRM, handle)
    threading.Thread(target=watch).start()
def until_called():
    while not Path(marker).exists(): time.sleep(0.005)
def late(): raise TimeoutError("late")
def launch(): got.append(float(total(x)))
signal.signal(signal.SIGALRM, signal.SIG_DFL)
got = []
"""


@pytest.fixture
def odd_cluster(shared_cluster: mcnb.Cluster, tmp_path: Path) -> mcnb.Cluster:
    if not shared_cluster.running:
        shared_cluster.start()
    shared_cluster.push({"marker": str(tmp_path / "called")})
    shared_cluster.run(SETUP + HANDLER).raise_for_errors()
    return shared_cluster


def goes_on(cluster: mcnb.Cluster) -> bool:
    return cluster.run(NEXT).text() == "[all 4] 500.0\n"


@pytest.mark.parametrize(
    "launch", ["total(x)", "jnp.sum(x + 2.5)", "mu.process_allgather(np.ones(2))"]
)
@pytest.mark.parametrize("launched_before", [False, True])
def test_an_error_of_a_signal_handler_is_the_cells_own(
    odd_cluster: mcnb.Cluster, launch: str, launched_before: bool
) -> None:
    before = f"for _ in range(3): {launch}\n" if launched_before else "pass\n"
    # The others launch when the error has been raised: if they did so before it, all would make
    # the launch, and the error would be raised after it.
    result = odd_cluster.run(
        f"{before}raised = Path(marker + ' raised')\n"
        "if k == 2: when_waiting(late)\n"
        "while k != 2 and not raised.exists(): time.sleep(0.005)\n"
        f"try: {launch}\n"
        "finally: raised.touch()\n"
        "time.sleep(0.2)"
    )
    assert (result.errors[2].name, result.errors[2].message) == ("TimeoutError", "late")
    assert result.verdict is not None
    assert result.verdict.kind == "missing"
    assert result.verdict.states[2].doing == "raised"
    assert goes_on(odd_cluster)


def test_a_signal_handler_may_launch(odd_cluster: mcnb.Cluster) -> None:
    result = odd_cluster.run(
        "if k == 2: when_waiting(launch); m = float(jnp.max(x + 0.25))\n"
        "else: until_called(); m = float(jnp.max(x + 0.25)); launch()\n"
        "m, got"
    )
    assert result.value == dict.fromkeys(range(4), "(31.25, [496.0])")
    assert goes_on(odd_cluster)


def test_a_handler_may_not_launch_below_a_launch_of_native_code(
    odd_cluster: mcnb.Cluster,
) -> None:
    # JAX's C++ launches what was launched before there was a handler. If values are compared, now
    # and then Python does, after some time.
    before = "f = jax.jit(jnp.max)\nfor _ in range(3): f(x)"
    odd_cluster.run(before, values=False).raise_for_errors()
    result = odd_cluster.run(
        "if k == 2:\n    when_waiting(launch)\n    f(x)\n    time.sleep(0.3)\n"
        "else: until_called(); f(x); launch()",
        values=False,
    )
    assert str(result.error()) == (
        "process 2 raised McnbError: a signal handler or a finalizer launched jit(sum) in the "
        "middle of the launch of jit(max), which has to come first. Set a flag in the handler, and "
        "launch at the end of a step (line 4). Processes 0,1,3 waited at line 5 in jit(sum). The "
        "cluster is intact; all variables are kept"
    )
    assert goes_on(odd_cluster)


def test_handlers_that_launch_in_another_order_diverge(odd_cluster: mcnb.Cluster) -> None:
    result = odd_cluster.run(
        "if k == 2: when_waiting(launch); float(jnp.min(x))\n"
        "else: until_called(); launch(); float(jnp.min(x))"
    )
    assert result.verdict is not None
    assert result.verdict.kind == "mismatch"
    names = {k: state.launch.name for k, state in result.verdict.states.items() if state.launch}
    assert names == {0: "jit(sum)", 1: "jit(sum)", 2: "min", 3: "jit(sum)"}
    assert goes_on(odd_cluster)


@pytest.mark.parametrize("cause", ["", " from None", " from error"])
def test_an_error_made_of_a_verdict_does_not_hide_who_is_missing(
    odd_cluster: mcnb.Cluster, cause: str
) -> None:
    result = odd_cluster.run(
        "try:\n    if k != 2: total(x)\n"
        f"except Exception as error: raise RuntimeError('mine'){cause}"
    )
    assert str(result.error()) == (
        "missing: processes 0,1,3 are waiting in jit(sum), line 2; process 2 finished the cell "
        "without reaching it. Hint: this line runs only if `k != 2`. A collective must run on "
        "every participating process: move it out of the condition, and keep only local work "
        "such as printing inside. The cluster is intact; all variables are kept. "
        "processes 0,1,3 raised RuntimeError: mine (line 3)"
    )


def test_who_raised_first_is_named_first(odd_cluster: mcnb.Cluster) -> None:
    result = odd_cluster.run(
        "try:\n    if k == 2: raise ValueError('own')\n    total(x)\n"
        "except mcnb.LockstepError: raise RuntimeError('mine') from None"
    )
    assert result.errors[2].summary() == "ValueError: own (line 2)"
    assert "processes 0,1,3 waited at line 3" in str(result.error()).lower()


def test_a_forked_child_leaves_the_check_alone(odd_cluster: mcnb.Cluster) -> None:
    result = odd_cluster.run(
        "import signal, warnings\n"
        "with warnings.catch_warnings():\n"
        "    warnings.simplefilter('ignore')\n"
        "    child = os.fork()\n"
        "if child == 0:\n"
        "    try: total(x)  # hangs, as without mcnb: the child has none of JAX's threads\n"
        "    finally: os._exit(3)\n"
        "time.sleep(0.3)\nv = float(total(x))\n"
        "os.kill(child, signal.SIGKILL); os.waitpid(child, 0)\nv"
    )
    assert result.text() == "[all 4] 496.0\n"
    assert goes_on(odd_cluster)


def test_a_forked_child_passes_and_ends(server: Server, clients: list[Client]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this process has threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            code = clients[0].make(F, Place(1), lambda: 7)
            clients[0].close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert server.waits() == {}
    learners = [Learner(client, G) for client in clients]
    assert [one.joined().made for one in learners] == [["jit(g)"], ["jit(g)"]]


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("print('a'); sys.stdout.close(); print('b')", "a\nb"),
        ("sys.stdout.buffer.close(); print('a')", "a"),
        ("with sys.stdout: print('a')\nprint('b')", "a\nb"),
        ("sys.stdout.detach(); print('a')", "a"),
        ("print('a')\nsys.stdout = None", "a"),
        ("with open(os.devnull, 'w') as sys.stdout: print('hidden')", ""),
        ("class Quiet:\n    def write(self, text): pass\nsys.stdout = Quiet()\nprint('a')", ""),
        ("print('a')\nos.close(1)", "a"),
    ],
)
def test_a_cell_that_closes_its_output_gets_it_back(
    odd_cluster: mcnb.Cluster, source: str, shown: str
) -> None:
    result = odd_cluster.run(f"import os, sys\n{source}")
    assert result.stdout == dict.fromkeys(range(4), f"{shown}\n" if shown else "")
    after = odd_cluster.run("print('c', flush=True); os.write(1, b'd\\n'); os.system('echo e')")
    assert after.stdout == dict.fromkeys(range(4), "c\nd\ne\n")
    assert goes_on(odd_cluster)


def test_a_number_that_a_thread_had_for_a_while(odd_cluster: mcnb.Cluster, tmp_path: Path) -> None:
    """Of a file that was open under it when the cell ended, as those are that mcnb reads."""
    cell_ended = tmp_path / "cell_ended"
    odd_cluster.run(
        "import os, threading, time\n"
        "closed, file = threading.Event(), os.open(os.devnull, os.O_RDONLY)\n"
        "os.dup2(file, 1)\n"
        "def later():\n"
        f"    while not os.path.exists({str(cell_ended)!r}): time.sleep(0.01)\n"
        "    os.close(1)\n    closed.set()\n"
        "threading.Thread(target=later).start()"
    ).raise_for_errors()
    cell_ended.touch()
    assert wait_until(lambda: all(odd_cluster.pull("closed.is_set()").values()))
    after = odd_cluster.run("written = os.write(1, b'd\\n')")
    assert after.text() == "[all 4] d\n"
    assert goes_on(odd_cluster)


def test_what_was_compiled_before_a_heal_is_refused(odd_cluster: mcnb.Cluster) -> None:
    odd_cluster.run(
        "low = total.lower(x)\nold = low.compile()\nold(x)\n"
        "one = jax.jit(lambda v: v + 1)\nown = one.lower(jnp.ones(3)).compile()\nown(jnp.ones(3))\n"
        "for _ in range(3): one(jnp.ones(3)); total(x)"
    ).raise_for_errors()
    odd_cluster.heal()
    for call, name in (
        ("old(x)", "jit(sum)"),
        ("low.compile()(x)", "jit(sum)"),
        ("own(jnp.ones(3))", "jit(<lambda>)"),
    ):
        errors = odd_cluster.run(call).errors
        assert [error.summary() for error in errors.values()] == [
            f"RuntimeError: {name} was compiled before processes were replaced, for devices that "
            "no longer exist. Lower and compile it again (line 1)"
        ] * 4
    again = "float(total.lower(x).compile()(x)), float(one(jnp.ones(3))[0]), float(total(x))"
    assert odd_cluster.run(again).text() == "[all 4] (496.0, 2.0, 496.0)\n"
