"""Every cell ends when it is told to, soon, and what is said of it is true."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import mcnb
from mcnb.cluster import stopping
from mcnb.cluster.workers import Pending
from mcnb.worker.unfinished import wind_down
from tests.conftest import Notebook, once, wait_until
from tests.support.stopping import HOWS, HUNG_S, KINDS, How, fate_of, lies, stop_cell
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
        # One that was about to launch the loop does not compute.
        assert re.fullmatch(
            r"All 4 processes \(lines? [67, ]+\) were interrupted\. "
            r"\w+( 4)? ?(process(es)? )?[\d,-]* ?still computes? on device 0; the newest launch is "
            r"jit\(loop\) \(In\[\d+\], line 6\)\. "
            r"A computation that does not communicate can't be aborted\. "
            r"(Process(es)? [\d,]+ did not report whether a device still computes\. )?"
            r"All 4 processes are being restarted: their variables are lost\. "
            r"To restore them, re-run the cells that succeeded: "
            r"%mcjax restart --replay",
            stopped.aftermath,
        ), stopped.aftermath


@once
def test_steps_that_nothing_waits_for_keep_the_variables(prepared: mcnb.Cluster) -> None:
    """A stop finds some processes a step ahead of others, in a different place each time."""
    kind = KINDS["steps that nothing waits for"]
    for _ in range(5):
        stopped = stop_cell(prepared, kind, "all", "stop")
        assert (stopped.wrong, stopped.fate in kind.fates) == ("", True), stopped


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def pressing(when: Callable[[], object]) -> threading.Thread:
    """Press stop, once something holds."""

    def wait_and_press() -> None:
        if wait_until(when, HUNG_S):
            press()

    thread = threading.Thread(target=wait_and_press)
    thread.start()
    return thread


def says_running(cluster: mcnb.Cluster) -> bool:
    """Return whether the cell has said on every process that it is running."""
    processes = cluster._lifetime.processes
    return processes is not None and all(
        processes.last_words(k).said == "running\n" for k in range(4)
    )


def test_two_presses_in_quick_succession_are_one(
    prepared: mcnb.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "SAME_PRESS_S", HUNG_S)  # they are, however long they take
    stages: list[str] = []

    def watch(pending: Pending) -> None:
        if pending.stage and not stages:
            press()
        stages.extend([pending.stage] if pending.stage else [])

    thread = pressing(lambda: says_running(prepared))
    with pytest.raises(KeyboardInterrupt):
        prepared.run(
            "import time\nprint('running')\ntry: time.sleep(600)\nfinally: time.sleep(0.3)",
            watcher=watch,
        )
    thread.join()
    assert stages
    assert prepared.last is not None
    assert prepared.last.aftermath.endswith("The cluster is intact; all variables are kept")


def test_an_interrupt_may_come_before_the_cell_has_begun(prepared: mcnb.Cluster) -> None:
    pids = list(prepared.pull("pid").values())
    late = psutil.Process(pids[1])
    seen: list[str] = []

    def watch(pending: Pending) -> None:
        if not seen:
            prepared.interrupt()
        seen.append(pending.stage)
        # First it is shown that the processes are interrupted, then they are.
        if seen.count("Stopping: interrupting all 4 processes …") == 3:
            late.resume()

    late.suspend()  # neither the cell nor the interrupt arrives
    began = time.monotonic()
    try:
        result = prepared.run("import time\ntime.sleep(600)", watcher=watch)
    finally:
        late.resume()
    assert seen.count("Stopping: interrupting all 4 processes …") >= 3
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


def test_who_ends_a_cell_by_itself_is_not_told_to_have_been_interrupted(
    prepared: mcnb.Cluster,
) -> None:
    for number in range(20):
        timer = threading.Timer(0.09 + number % 10 * 0.003, prepared.interrupt)
        timer.start()
        result = prepared.run("import time\ntime.sleep(0.1)\n'finished'")
        timer.join()
        stopped = {k for k, text in result.value.items() if text is None}
        assert {*result.stopped} == stopped, (result.value, result.aftermath)
        assert result.interrupted == bool(stopped)


@pytest.mark.promise("what still runs is named")
def test_an_interrupt_that_comes_late_hides_nothing(prepared: mcnb.Cluster) -> None:
    """The cell is over in a process, which already reports what the cell left running."""
    source = "t = lax.fori_loop(0, 30_000, lambda i, a: a @ a, jnp.ones((64, 64)))"
    prepared.run(f"{source}; t.block_until_ready()").raise_for_errors()  # compiled
    processes = prepared._lifetime.processes
    assert processes is not None
    prepared.run(source).raise_for_errors()
    winding = processes.client.call(wind_down, False, True, HUNG_S)

    def interrupt() -> float | None:
        for k in winding.waiting:
            processes.interrupt(k)
        return 0.05 if since(winding.started) < HUNG_S else None

    assert winding.follow(interrupt)
    assert all(answer.nothing for answer in winding.answers.values()), winding.answers


@pytest.mark.promise("a pull can be stopped")
def test_a_pull_can_be_stopped(prepared: mcnb.Cluster, tmp_path: Path) -> None:
    pids = list(prepared.pull("pid").values())
    prepared.push({"folder": str(tmp_path)})
    thread = pressing(lambda: len(list(tmp_path.iterdir())) == 4)
    with pytest.raises(KeyboardInterrupt) as raised:
        prepared.pull("os.mkdir(f'{folder}/{k}') or __import__('time').sleep(1000)")
    thread.join()
    assert str(raised.value) == (
        "All 4 processes were interrupted. The cluster is intact; all variables are kept"
    )
    assert prepared.pull("k") == {k: k for k in range(4)}
    assert lies(prepared, "intact", pids) == []


def main_thread_is_in(function: str) -> bool:
    main = threading.main_thread().ident
    assert main is not None
    frames = traceback.walk_stack(sys._current_frames()[main])
    return any(frame.f_code.co_name == function for frame, _ in frames)


def test_a_stop_while_the_processes_are_restarted(
    prepared: mcnb.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, pressed = prepared._lifetime._start, threading.Event()

    def start_when_pressed() -> None:
        assert pressed.wait(HUNG_S)
        start()

    monkeypatch.setattr(prepared._lifetime, "_start", start_when_pressed)
    prepared.run("import os\nos._exit(3)")
    assert prepared.recovering
    thread = pressing(lambda: main_thread_is_in("_wait_for_recovery"))
    with pytest.raises(KeyboardInterrupt):
        prepared.run("1")
    pressed.set()
    thread.join()
    assert prepared.run("1").text() == "[all 4] 1\n"


@pytest.mark.promise("a stop is reported at once")
def test_words_come_at_once(prepared: mcnb.Cluster) -> None:
    said: list[str] = []

    def watch(pending: Pending) -> None:
        if pending.stage not in said:
            said.append(pending.stage)

    thread = pressing(lambda: says_running(prepared))
    with pytest.raises(KeyboardInterrupt):
        prepared.run("print('running')\nwhile True: pass", watcher=watch)
    thread.join()
    assert said == [
        "",
        "Stopping: interrupting all 4 processes …",
        "Stopping: checking that no device computes any more …",
    ]


def test_a_watcher_may_ask_again_and_again(prepared: mcnb.Cluster) -> None:
    result = prepared.run(
        "import time\ntry: time.sleep(600)\nfinally: time.sleep(0.8)",
        watcher=lambda pending: (
            prepared.interrupt() if all(pending.progress(k).line for k in range(4)) else None
        ),
    )
    assert result.interrupted
    assert result.aftermath.endswith("The cluster is intact; all variables are kept")


def test_handlers_of_a_cell_do_not_outlive_it(prepared: mcnb.Cluster) -> None:
    prepared.run("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)").raise_for_errors()
    thread = pressing(lambda: says_running(prepared))
    with pytest.raises(KeyboardInterrupt):
        prepared.run("import time\nprint('running')\ntime.sleep(1000)")
    thread.join()
    assert prepared.last is not None
    assert fate_of(prepared.last.aftermath) == "intact"


def test_the_next_cell_waits_for_the_processes(notebook: Notebook) -> None:
    notebook.run("%%mcjax\nimport os\nos._exit(3)")
    assert notebook.run("%%mcjax\n1 + 1").stdout == "[all 4] 2\n"
