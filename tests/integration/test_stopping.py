"""Every cell ends when it is told to, soon, and what is said of it is true."""

from __future__ import annotations

import os
import re
import signal
import threading
import time

import psutil
import pytest

import mcnb
from mcnb.cluster.workers import Pending
from mcnb.worker.unfinished import wind_down
from tests.conftest import Notebook, once
from tests.support.stopping import HOWS, KINDS, How, fate_of, lies, stop_cell
from tests.support.timing import since

pytestmark = pytest.mark.thorough("stops every kind of cell")

# Each kind once in each way; one process where that is possible, and all with every other kind.
TABLE = [
    (name, "all" if not kind.alone or number % 2 else "one", HOWS[number % len(HOWS)])
    for number, (name, kind) in enumerate(KINDS.items())
]
# A stop is over within 5 s, as `bench_stopping.py` measures it. This limit tells one that ends by
# itself from one that hangs, also on a busy machine.
NOT_FOR_EVER_S = 30.0


@once
@pytest.mark.parametrize(("name", "processes", "how"), TABLE, ids=[row[0] for row in TABLE])
def test_every_kind_of_cell(prepared: mcnb.Cluster, name: str, processes: str, how: How) -> None:
    kind = KINDS[name]
    stopped = stop_cell(prepared, kind, "one" if processes == "one" else "all", how)
    assert stopped.wrong == "", stopped
    assert stopped.over_s < NOT_FOR_EVER_S, stopped
    assert stopped.told_s < NOT_FOR_EVER_S, stopped
    if how != "second stop":
        assert stopped.fate in kind.fates, stopped


@pytest.mark.parametrize("name", ["a loop on one device", "a loop with collectives"])
@pytest.mark.promise("stop means stop")
def test_what_the_stop_button_used_to_lie_about(prepared: mcnb.Cluster, name: str) -> None:
    stopped = stop_cell(prepared, KINDS[name], "all", "stop")
    assert stopped.wrong == ""
    assert stopped.fate in KINDS[name].fates
    if name == "a loop on one device":
        # One that was still compiling does not compute.
        assert re.fullmatch(
            r"All 4 processes \(line 3\) were interrupted\. \w+( 4)? ?(process(es)? )?[\d,-]* ?"
            r"still computes? on device 0; the newest launch is fori_loop \(In\[\d+\], line 3\)\. "
            r"A computation that does not communicate can't be aborted\. "
            r"(Process \d did not report whether a device still computes\. )?All 4 processes were "
            r"restarted: their variables are lost\. To re-run the cells that defined them: "
            r"%mcjax restart --replay",
            stopped.aftermath,
        ), stopped.aftermath


def pressing(seconds: float, times: int = 1, gap: float = 0.0) -> threading.Thread:
    def press() -> None:
        time.sleep(seconds)
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(gap)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


def test_two_presses_in_quick_succession_are_one(prepared: mcnb.Cluster) -> None:
    thread = pressing(0.5, times=2, gap=0.05)
    with pytest.raises(KeyboardInterrupt):
        prepared.run("import time\ntry: time.sleep(60)\nfinally: time.sleep(0.3)")
    thread.join()
    assert prepared.last is not None
    assert prepared.last.aftermath.endswith("The cluster is intact; all variables are kept")


def test_an_interrupt_may_come_before_the_cell_has_begun(prepared: mcnb.Cluster) -> None:
    pids = list(prepared.pull("pid").values())
    late = psutil.Process(pids[1])
    late.suspend()  # neither the cell nor the interrupt arrives
    timers = [threading.Timer(0.2, prepared.interrupt), threading.Timer(0.5, late.resume)]
    for timer in timers:
        timer.start()
    began = time.monotonic()
    result = prepared.run("import time\ntime.sleep(60)")
    for timer in timers:
        timer.join()
    assert since(began) < NOT_FOR_EVER_S
    assert result.interrupted
    assert fate_of(result.aftermath) == "intact"
    assert lies(prepared, "intact", pids) == []


@pytest.mark.parametrize("after", [0.001, 0.003, 0.006, 0.01, 0.02])
def test_a_cell_that_ends_as_it_is_interrupted(prepared: mcnb.Cluster, after: float) -> None:
    timer = threading.Timer(after, prepared.interrupt)
    timer.start()
    result = prepared.run("y = jnp.sum(x)")
    timer.join()
    # Healed, where one process had launched the sum and another one had not.
    assert fate_of(result.aftermath) in ("intact", "healed")
    assert prepared.run("float(jnp.sum(x))").text() == "[all 4] 496.0\n"


@pytest.mark.promise("what still runs is named")
def test_an_interrupt_that_comes_late_hides_nothing(prepared: mcnb.Cluster) -> None:
    """The cell is over in a process, which already reports what the cell left running."""
    source = "t = lax.fori_loop(0, 30_000, lambda i, a: a @ a, jnp.ones((64, 64)))"
    prepared.run(f"{source}; t.block_until_ready()").raise_for_errors()  # compiled
    processes = prepared._lifetime.processes
    assert processes is not None
    prepared.run(source).raise_for_errors()
    winding = processes.client.call(wind_down, False, True, 20.0)

    def interrupt() -> float | None:
        for k in winding.waiting:
            processes.interrupt(k)
        return 0.05 if time.monotonic() < winding.started + NOT_FOR_EVER_S else None

    assert winding.follow(interrupt)
    assert all(answer.nothing for answer in winding.answers.values()), winding.answers


@pytest.mark.promise("a pull can be stopped")
def test_a_pull_can_be_stopped(prepared: mcnb.Cluster) -> None:
    pids = list(prepared.pull("pid").values())
    thread = pressing(0.7)
    with pytest.raises(KeyboardInterrupt) as raised:
        prepared.pull("__import__('time').sleep(1000)")
    thread.join()
    assert str(raised.value) == (
        "All 4 processes were interrupted. The cluster is intact; all variables are kept"
    )
    assert prepared.pull("k") == {k: k for k in range(4)}
    assert lies(prepared, "intact", pids) == []


def test_a_stop_while_the_processes_are_restarted(prepared: mcnb.Cluster) -> None:
    prepared.run("import os\nos._exit(3)")
    assert prepared.recovering
    thread = pressing(0.05)
    with pytest.raises(KeyboardInterrupt):
        prepared.run("1")
    thread.join()
    assert prepared.run("1").text() == "[all 4] 1\n"


@pytest.mark.promise("a stop is reported at once")
def test_words_come_at_once(prepared: mcnb.Cluster) -> None:
    said: list[str] = []

    def watch(pending: Pending) -> None:
        if pending.stage not in said:
            said.append(pending.stage)

    thread = pressing(0.5)
    with pytest.raises(KeyboardInterrupt):
        prepared.run("while True: pass", watcher=watch)
    thread.join()
    assert said == [
        "",
        "Stopping: interrupting all 4 processes …",
        "Stopping: checking that no device computes any more …",
    ]


def test_a_watcher_may_ask_again_and_again(prepared: mcnb.Cluster) -> None:
    result = prepared.run(
        "import time\ntry: time.sleep(60)\nfinally: time.sleep(0.8)",
        watcher=lambda pending: prepared.interrupt() if pending.progress(0).line else None,
    )
    assert result.interrupted
    assert result.aftermath.endswith("The cluster is intact; all variables are kept")


def test_handlers_of_a_cell_do_not_outlive_it(prepared: mcnb.Cluster) -> None:
    prepared.run("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)").raise_for_errors()
    thread = pressing(0.5)
    with pytest.raises(KeyboardInterrupt):
        prepared.run("import time\ntime.sleep(1000)")
    thread.join()
    assert prepared.last is not None
    assert fate_of(prepared.last.aftermath) == "intact"


def test_the_next_cell_waits_for_the_processes(notebook: Notebook) -> None:
    notebook.run("%%mcjax\nimport os\nos._exit(3)")
    assert notebook.run("%%mcjax\n1 + 1").stdout == "[all 4] 2\n"
