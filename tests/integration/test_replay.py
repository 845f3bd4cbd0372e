"""After a restart, the cells that had succeeded run again, in their order."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import mcnb
from mcnb.cluster.history import Cell
from tests.conftest import Notebook, once, wait_until
from tests.support.clients import HANG_S
from tests.support.people import at_a_notebook

# Which cells a replay runs, and in which order, does not depend on Python or JAX.
pytestmark = once


@pytest.fixture(scope="module")
def replayed() -> Iterator[mcnb.Cluster]:
    with mcnb.Cluster(processes=2, devices_per_process=1) as cluster:
        yield cluster


@pytest.fixture
def fresh(replayed: mcnb.Cluster) -> mcnb.Cluster:
    """A cluster in which nothing has run since its start."""
    replayed.restart()
    replayed.run("import jax; made = []; k = jax.process_index()").raise_for_errors()
    return replayed


def test_cells_run_again_in_their_order_and_where_they_ran(fresh: mcnb.Cluster) -> None:
    fresh.push({"pushed": 7})
    fresh.run("made.append('all')")
    fresh.run("made.append('one')", processes=1)
    fresh.push({"pushed": 8}, processes=[0])
    fresh.run("made.append(pushed)")
    fresh.run("made.append('lost'); 1 / 0", label="7")
    assert fresh.restart(replay=True) is None
    assert re.fullmatch(
        r"4 cells ran again: (In\[\d+\](, )?){4}\. Restored variables: pushed\. Left out, "
        r"because it had "
        r"failed before: In\[7\]",
        str(fresh.replay),
    )
    assert fresh.pull("made") == {0: ["all", 8], 1: ["all", "one", 7]}
    # And again: what was replayed is history, too.
    fresh.run("made.append('more')")
    assert fresh.restart(replay=True) is None
    assert fresh.pull("made")[1] == ["all", "one", 7, "more"]


def test_a_replay_stops_at_the_first_that_fails(fresh: mcnb.Cluster, tmp_path: object) -> None:
    gone = f"{tmp_path}/gone"
    fresh.run(f"open({gone!r}, 'a').close()", processes=0)
    fresh.run(
        f"import os\nif os.path.exists({gone!r} + '2'): raise OSError('mine')\nmade.append(1)",
        label="9",
    )
    fresh.run("made.append(2)")
    fresh.run(f"open({gone!r} + '2', 'a').close()", processes=0)
    failed = fresh.restart(replay=True)
    assert failed is not None
    assert str(failed.error()) == "both processes raised OSError: mine (line 2)"
    assert fresh.pull("made") == {0: [], 1: []}
    # The first cell of all, and the one that leaves the file.
    assert re.fullmatch(
        r"2 cells ran again: In\[\d+\], In\[\d+\]\. In\[9\] failed, and 2 cells after it did not "
        r"run",
        str(fresh.replay),
    )
    # Neither the one that failed nor those after it are lost for the next replay.
    fresh.run(f"import os; os.remove({gone!r} + '2')", processes=0).raise_for_errors()
    assert fresh.replayable.startswith("6 cells: ")


def test_cells_are_named(fresh: mcnb.Cluster) -> None:
    """One that had failed runs again if it is named, and one that never ran is refused."""
    fresh.run("made.append('one'); 1 / zero", label="7")
    fresh.run("zero = 1", label="8").raise_for_errors()
    before = fresh.pull("made")
    with pytest.raises(mcnb.OptionError) as raised:
        fresh.restart(replay="In[99]")
    assert "--replay In[99]: In[99] has not run on these processes. Cells that have: " in str(
        raised.value
    )
    assert fresh.pull("made") == before
    failed = fresh.restart(replay="In[7-8]", keep_going=True)
    assert failed is not None
    assert re.match(r"1 cell ran again: In\[8\]\. In\[7\] failed", str(fresh.replay))


def test_cells_that_a_replay_left_out_can_be_named_again(fresh: mcnb.Cluster) -> None:
    fresh.run("setup = 7", label="5").raise_for_errors()
    fresh.run("user = setup + 1", label="6").raise_for_errors()
    failed = fresh.restart(replay="In[6]")
    assert failed is not None
    assert str(fresh.replay).startswith("0 cells ran again. In[6] failed. Left out, as not named: ")
    assert fresh.restart(replay="In[5-6]") is None
    assert fresh.pull("user", processes=[0]) == {0: 8}


def test_what_ran_before_a_death_is_replayed(fresh: mcnb.Cluster) -> None:
    fresh.run("made.append('before')")
    died = fresh.run("import os\nif k == 1: os._exit(3)")
    assert list(died.died) == [1]
    fresh.run("made = ['after']")
    fresh.run("made.append('last')")
    assert fresh.restart(replay=True) is None
    assert fresh.pull("made") == {0: ["after", "last"], 1: ["after", "last"]}
    assert fresh.pull("k") == {0: 0, 1: 1}


def test_what_ran_before_a_plain_restart_is_not(fresh: mcnb.Cluster) -> None:
    fresh.run("old = 1")
    fresh.restart()
    fresh.run("new = 2")
    assert fresh.restart(replay=True) is None
    assert fresh.pull("new") == {0: 2, 1: 2}
    assert not fresh.run("old").ok


def test_what_ran_before_a_stop_can_still_be_replayed(fresh: mcnb.Cluster) -> None:
    fresh.run("old = 1")
    fresh.stop()
    assert fresh.restart(replay=True) is None
    assert fresh.pull("old") == {0: 1, 1: 1}


def test_an_unchecked_cell_and_its_time_limit_are_replayed_as_they_were(
    fresh: mcnb.Cluster,
) -> None:
    fresh.run("made.append(1)", checked=False, timeout=30.0)
    assert fresh.restart(replay=True) is None
    assert fresh.pull("made") == {0: [1], 1: [1]}


@pytest.mark.promise("%mcjax restart --replay")
def test_the_magic(notebook: Notebook) -> None:
    notebook.run("%mcjax restart")
    first = notebook.run("%%mcjax\nkept = 3").execution_count
    assert re.fullmatch(
        r"1 cell ran again: In\[\d+\]\nReady: 4 processes x 2 CPU devices\n",
        notebook.run("%mcjax restart --replay").stdout,
    )
    second = notebook.run("%%mcjax\nmore = kept + 1").execution_count
    assert notebook.run(f"%mcjax restart --replay In[{first}]").stdout == (
        f"1 cell ran again: In[{first}]. Left out, as not named: In[{second}]\n"
        "Ready: 4 processes x 2 CPU devices\n"
    )
    assert notebook.run("%%mcjax\nkept").stdout == "[all 4] 3\n"


def test_a_lost_cluster_is_not_started_twice(fresh: mcnb.Cluster) -> None:
    fresh.run("made.append('kept')")
    lost = set(fresh.pull("__import__('os').getpid()").values())
    assert fresh.run("import os\nif k == 1: os._exit(3)").died
    fresh.restart()
    started = set(fresh.pull("__import__('os').getpid()").values())
    assert not started & lost
    fresh.run("import os\nos._exit(3)")
    assert fresh.restart(replay=True) is None
    assert not set(fresh.pull("__import__('os').getpid()").values()) & started


def test_a_stop_in_a_replay_says_what_came_of_it(notebook: Notebook) -> None:
    notebook.run("%mcjax restart")
    notebook.run("%%mcjax\nimport time\nfirst = globals().get('first', 0)")
    # Quick the first time, and slow in the replay.
    mcnb.current_cluster()._history.add(
        Cell("import time; print('again', flush=True); time.sleep(600)", (0, 1, 2, 3), "9")
    )

    def again() -> bool:
        processes = mcnb.current_cluster()._lifetime.processes
        return processes is not None and all(
            "again" in processes.last_words(k).said for k in range(4)
        )

    def press() -> None:
        if wait_until(again, HANG_S):
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    error = notebook.error("%mcjax restart --replay")
    thread.join()
    assert re.fullmatch(  # the line is known as soon as a process has reported it
        r"KeyboardInterrupt: The replay was interrupted\. All 4 processes( \(line 1\))? were "
        r"interrupted\. The cluster is intact; all variables are kept",
        error,
    )
    assert notebook.run("%%mcjax\nfirst").stdout == "[all 4] 0\n"


@pytest.mark.parametrize(
    "wait",
    [
        "time.sleep(600)",
        pytest.param("pull", marks=pytest.mark.thorough("more of the same kind")),
    ],
)
def test_a_cell_whose_computation_never_ended_is_left_out(
    fresh: mcnb.Cluster, wait: str, tmp_path: Path
) -> None:
    """It had succeeded, since nobody waited for it; it would compute for ever again."""
    fresh.run("import pathlib, time\nimport jax.numpy as jnp\nkept = 1")
    endless = "jax.lax.fori_loop(0, 10**9, lambda i, a: a @ a, jnp.ones((64, 64)))"
    fresh.run(f"y = {endless}; z = 2", label="8").raise_for_errors()
    under_way = f"pathlib.Path({str(tmp_path)!r}, str(k)).touch()"

    def end() -> None:
        if wait_until(lambda: len(list(tmp_path.iterdir())) == 2, HANG_S):
            time.sleep(1.0)  # they wait for a while
            fresh.interrupt()

    ended = threading.Thread(target=end)
    ended.start()
    if wait == "pull":
        with pytest.raises(mcnb.CellError):
            fresh.pull(f"({under_way}, y)[1]")
    else:
        assert "is gone" not in fresh.run(f"{under_way}\n{wait}").aftermath
    ended.join()
    assert fresh.restart(replay=True) is None
    assert str(fresh.replay).endswith("Left out, because its computation had to be ended: In[8]")
    assert fresh.pull("(kept, 'z' in globals())") == {0: (1, False), 1: (1, False)}


@pytest.mark.thorough("executes a notebook")
def test_a_notebook_tells_which_cell_was_changed() -> None:
    *_, replayed, shown = at_a_notebook(
        ("%load_ext mcnb\n%mcjax start -n 2 -d 1", []),
        ("%%mcjax\nsteps = [1]", [], "first"),
        ("%%mcjax\nsteps.append(3)", [], "second"),
        ("%%mcjax\nsteps = [2]", [], "first"),
        ("%%mcjax\nsteps.append(4)", [], "second"),
        ("%mcjax restart --replay", []),
        ("%%mcjax\nprint(steps)", []),
    )
    texts = ["".join(c.get("text", "") for _, c in one) for one in (replayed, shown)]
    assert texts[0].startswith(
        "2 cells ran again: In[4], In[5]. Left out, as a newer version ran: In[2], In[3]\n"
    )
    assert texts[1] == "[all 2] [2, 4]\n"
