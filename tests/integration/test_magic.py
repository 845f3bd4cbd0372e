"""The magics in a real IPython shell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter

import mcnb
from mcnb.lockstep.model import Launch, ProcessState
from mcnb.lockstep.server import Waits
from mcnb.notebook import live as live_views
from mcnb.notebook.live import FIRST_S, LiveView, progress_lines
from mcnb.notebook.places import InNotebook
from mcnb.output.terminal import without_escapes
from tests.conftest import Notebook, once
from tests.support.clients import HANG_S

# IPython is the same with each Python, and the tests of other files use it with each.
pytestmark = once


def test_a_cell_and_its_folded_answer(notebook: Notebook) -> None:
    result = notebook.run(
        "%%mcjax\nimport jax\nprint('all')\nprint('I am', jax.process_index())\n7"
    )
    assert result.success
    assert result.result is None
    assert result.stderr == ""
    assert result.stdout == (
        "[all 4] all\n[0]     I am 0\n[1]     I am 1\n[2]     I am 2\n[3]     I am 3\n[all 4] 7\n"
    )


def test_lines_are_those_of_the_notebooks_cell(notebook: Notebook) -> None:
    assert notebook.error("%%mcjax\nx = 1\n1 / 0") == (
        "CellError: all 4 processes raised ZeroDivisionError: division by zero (line 3)"
    )


def test_what_controls_the_processes_is_refused_on_them(notebook: Notebook) -> None:
    assert notebook.error("%%mcjax\nprint(1)\n%mcjax vars") == (
        "CellError: all 4 processes raised OptionError: %mcjax vars: this cell runs on the "
        "processes, and %mcjax in the notebook kernel. Give it a cell of its own, without %%mcjax; "
        "with %mcjax auto on, begin that cell with %%here (line 3)"
    )
    for call in ("mcnb.panel()", "mcnb.check('01.1')"):
        assert notebook.error(f"%%mcjax\nimport mcnb\n{call}") == (
            "CellError: all 4 processes raised ClusterError: The notebook kernel controls the "
            "cluster, and this cell runs on its processes. Give the call a cell without %%mcjax; "
            "with %mcjax auto on, begin that cell with %%here (line 3)"
        )


def test_a_very_long_error_says_where_all_of_it_is(notebook: Notebook) -> None:
    way = "… 27513 characters are left out here; full text: mcnb.current_cluster().last.errors …"
    cell = "%%mcjax\nraise ValueError('x' * 30_000)"
    assert way in " ".join(notebook.run(cell).stdout.split())
    assert way in " ".join(notebook.run("%mcjax last").stderr.split())
    notebook.run("import mcnb\nerrors = mcnb.current_cluster().last.errors.values()")
    assert {one.message for one in notebook.shell.user_ns["errors"]} == {"x" * 30_000}


def test_every_cell_runs_on_the_processes(notebook: Notebook) -> None:
    assert notebook.run("%mcjax auto on").stdout == (
        "Every cell runs on the processes, except those that begin with %%here, another cell "
        "magic or %mcjax\n"
    )
    try:
        assert notebook.run("import jax\nimplied = jax.process_count()\nimplied").stdout == (
            "[all 4] 4\n"
        )
        assert notebook.error("x = 1\n1 / 0") == (
            "CellError: all 4 processes raised ZeroDivisionError: division by zero (line 2)"
        )
        assert notebook.run("%%mcjax -p 1\nimplied").stdout == "[1] 4\n"
        here = notebook.run("# In the kernel.\n%%here\nimplied = 'here'\nimplied")
        assert here.result == notebook.shell.user_ns["implied"] == "here"
        assert notebook.run("%mcjax status").stdout.startswith("4 processes x 2 CPU devices: ")
        assert notebook.run("%%timeit -n 1 -r 1\nimplied + ''").success
        with provisionalcompleter():
            found = [one.text for one in notebook.shell.Completer.completions("impl", 4)]
        assert found == ["implied"]
        # What looks around after an error is no cell for the processes, whose frames would go.
        assert notebook.error("1 / 0").endswith("division by zero (line 1)")
        for typed in ("%debug", "%%mcjax\n%debug"):
            notebook.run(typed)
            assert notebook.run("%mcjax debug p 1 + 1").stdout == "2\n"
        # As in a terminal: an input that is complete does not wait for a blank line.
        assert notebook.shell.check_complete("x = 1") == ("complete", "")
        assert notebook.shell.check_complete("for i in x:")[0] == "incomplete"
    finally:
        assert notebook.run("%mcjax auto off").stdout == (
            "Cells run in the notebook kernel, except those that begin with %%mcjax\n"
        )
    assert notebook.run("implied").result == "here"


def test_what_a_failed_cell_shows(notebook: Notebook) -> None:
    result = notebook.run("%%mcjax -p 1\nprint('before')\nraise ValueError('no')")
    shown = without_escapes(result.stdout)
    cell = f"Cell In[{result.execution_count}], line 3\n"
    assert shown.startswith(f"[1] before\n[1] ValueError in line 3\n{cell}")
    for inner in ("magic.py", "cluster.py", "Traceback"):
        assert inner not in shown


def test_a_name_that_the_processes_do_not_know(notebook: Notebook) -> None:
    def last(cell: str) -> str:
        return without_escapes(notebook.run(cell).stdout).splitlines()[-1]

    assert last("%%mcjax\nnobody_made_me") == (
        "Hint: first run the %%mcjax cell that defines nobody_made_me"
    )
    notebook.run("only_here = 1")
    shown = without_escapes(notebook.run("%%mcjax\nonly_here").stdout).splitlines()
    assert " ".join(shown[-3:]) == (
        "Hint: only_here is defined in the notebook kernel, but not on these processes. Define it "
        "in a cell that begins with %%mcjax, or copy it: %mcjax push only_here"
    )
    one = "%%mcjax\nimport jax\nif jax.process_index() == 1: nobody_made_me"
    assert last(one) == "NameError: name 'nobody_made_me' is not defined"


def test_stderr_stays_stderr(notebook: Notebook) -> None:
    result = notebook.run("%%mcjax\nimport sys\nprint('out')\nprint('err', file=sys.stderr)")
    assert (result.stdout, result.stderr) == ("[all 4] out\n", "[all 4] err\n")


def test_long_output_is_shortened_and_kept(notebook: Notebook) -> None:
    result = notebook.run("%%mcjax\nfor i in range(100_000): print(i)")
    lines = result.stdout.splitlines()
    assert len(lines) == 1001
    assert lines[0] == "[all 4] 0"
    assert lines[500] == ("… 99000 more lines; full text: mcnb.current_cluster().last.text() …")
    assert lines[1000] == "        99999"
    last = mcnb.current_cluster().last
    assert last is not None
    assert last.stdout[2].splitlines()[50_000] == "50000"


def test_a_default_cluster_on_first_use(empty_notebook: Notebook) -> None:
    result = empty_notebook.run("%%mcjax\nimport jax\n(jax.process_count(), jax.device_count())")
    assert result.stdout == "[all 4] (4, 8)\n"


def test_the_life_of_a_cluster(empty_notebook: Notebook) -> None:
    run = empty_notebook.run
    assert run("%mcjax start -n 2 -d 1").stdout == "Ready: 2 processes x 1 CPU device\n"
    assert run("%mcjax status").stdout == "2 processes x 1 CPU device: ready\n"
    run("%%mcjax\nx = 1")
    assert run("%mcjax interrupt").stdout == "No cell runs\n"
    assert run("%mcjax restart").stdout == (
        "Ready: 2 processes x 1 CPU device. The variables are lost\n"
    )
    assert "NameError" in empty_notebook.error("%%mcjax\nx")
    assert run("%mcjax stop").stdout == "Stopped: 2 processes x 1 CPU device\n"
    assert run("%mcjax stop").stdout == (
        "Nothing to stop: the cluster (2 processes x 1 CPU device) has no processes\n"
    )
    assert run("%mcjax stop").success


def test_help_is_help(notebook: Notebook) -> None:
    line, cell = (notebook.shell.object_inspect_text(name) for name in ("%mcjax", "%%mcjax"))
    for text in ("start", "status", "interrupt", "restart", "stop", "-n, --processes", "--env"):
        assert text in line
    assert "-p, --processes" in cell
    assert "Run the cell on all JAX processes at once" in cell


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("%mcjax st", ["start", "status", "stop"]),
        ("%mcjax start --pl", ["--platform"]),
        ("%%mcjax --pro", ["--processes"]),
    ],
)
def test_completion(notebook: Notebook, typed: str, offered: list[str]) -> None:
    with provisionalcompleter():
        matches = {c.text for c in notebook.shell.Completer.completions(typed, len(typed))}
    assert set(offered) <= matches


def test_unloading_stops_the_cluster() -> None:
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "shell.run_line_magic('load_ext', 'mcnb')\n"
        "shell.run_line_magic('mcjax', 'start -n 1 -d 1')\n"
        "shell.run_line_magic('unload_ext', 'mcnb')\n"
        "import psutil\n"
        "assert not psutil.Process().children(recursive=True)\n"
        "assert shell.find_line_magic('mcjax') is None\n"
        "assert shell.find_cell_magic('mcjax') is None\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


class _Pending:
    """A call that is under way, as the live view sees it."""

    def __init__(
        self, started: float, progress: dict[int, Any], waits: dict[int, Waits] | None = None
    ) -> None:
        self.waits = waits or {}
        self.waiting = set(progress)
        self.answers: dict[int, Any] = {}
        self.started = started
        self.progress = progress.__getitem__
        self.stage = ""
        self.replaceable = False


def test_the_live_view_says_at_once_how_a_cell_is_being_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[str] = []
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(live_views, "time", clock)
    place = InNotebook()
    monkeypatch.setattr(place, "show", shown.append)
    live = LiveView(4, place)
    pending: Any = _Pending(clock.now, {1: mcnb.messages.Progress(line=3)})
    clock.now += 0.4 * FIRST_S
    live(pending)
    assert shown == []  # the first second has not passed
    pending.stage, pending.replaceable = "Stopping: interrupting process 1 …", True
    live(pending)
    live(pending)
    pending.stage, pending.waiting = "Stopping: checking that no device computes any more …", set()
    live(pending)
    pending.stage, pending.replaceable = "Restarting the processes …", False
    live(pending)
    again = "Press stop again to restart the processes now; their variables are lost"
    assert shown == [
        "Process 1 has been running for 0 s\n[1] line 3\nStopping: interrupting process 1 …\n"
        f"{again}",
        f"Stopping: checking that no device computes any more …\n{again}",
        "Restarting the processes …",
    ]


def test_the_live_view_says_who_runs_since_when() -> None:
    pending: Any = _Pending(
        started=100.0,
        progress={
            0: mcnb.messages.Progress(line=3),
            1: mcnb.messages.Progress(line=4),
            2: mcnb.messages.Progress(line=5, waits_s=1.5),
        },
        waits={1: Waits(ProcessState("waits", Launch("sum", "1", (0, 1, 2)), line=4), since=108.0)},
    )
    assert progress_lines(pending, 112.4, 4) == [
        "Processes 0-2 have been running for 12 s",
        "[0] line 3",
        "[1] waiting for 4 s in sum, line 4, until processes 0,2 reach it",
        "[2] waiting for 2 s in native code, line 5",
    ]


def test_nobody_looks_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    pending: Any = _Pending(0.0, {0: mcnb.messages.Progress()})
    live = LiveView(4, None)
    live(pending)
    live.show("Starting")
    live.remove()
    assert capsys.readouterr().out == ""


def test_a_process_reports_where_it_stands(cluster: mcnb.Cluster, tmp_path: Path) -> None:
    reports: list[Any] = []
    enough = tmp_path / "enough"

    def watch(pending: Any) -> None:
        progress = pending.progress(0)
        if progress.line == 3 and (not reports or progress is not reports[-1]):
            reports.append(progress)
        if len(reports) == 4:
            enough.touch()

    cell = "import os, time\nprint('newest')\n"
    cell += f"while not os.path.exists({str(enough)!r}): time.sleep(0.5)"
    cluster.run(cell, watcher=watch, timeout=HANG_S).raise_for_errors()
    newest = mcnb.messages.Recent(1, ("newest",))
    assert {(one.recent, one.waits_s) for one in reports} == {(newest, 0.0)}
