"""The magics without processes: what is asked of the cluster, and what is printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from mcnb._cells import with_magic
from mcnb.cluster import cluster as clusters
from mcnb.cluster.outcome import Outcome
from mcnb.cluster.result import Result
from mcnb.errors import CellError, ClusterError, OptionError
from mcnb.lockstep.model import LaunchRecord
from mcnb.messages import DebuggerAnswer, ProcessError, Reply, Text
from mcnb.notebook import live
from mcnb.notebook import magics as module
from mcnb.notebook.assistance import PATIENCE_S
from mcnb.notebook.magics import McjaxMagics, register, unregister
from mcnb.options import CONNECTED, Options
from mcnb.output.log import log_text
from tests.support.verdicts import launch

TWO = "2 processes x 3 CPU devices"
WAITS = "Waiting for 12 s, until process 1 starts"


def result_of(*errors: ProcessError | None, said: str = "", **outcome: Any) -> Result:
    events = (Text("stdout", said),) if said else ()
    replies = {k: Reply(events, error) for k, error in enumerate(errors or (None, None))}
    return Result(replies, 2, Outcome(**outcome))


class FakeCluster:
    """A cluster without processes, which notes what is asked of it."""

    def __init__(self, options: Options, running: bool = False) -> None:
        self.options, self.running = options, running
        self.recovering = False
        self.last: Result | None = None
        self.replay = "2 cells ran again"
        self.replayable = "2 cells"
        self.done: list[Any] = []
        self.failed: Result | None = None
        self.result = result_of()
        self.error: BaseException | None = None

    def _do(self, *what: Any) -> None:
        self.done.append(what[0] if len(what) == 1 else what)
        if self.error is not None:
            raise self.error

    def start(self, tell: Callable[[str], object]) -> None:
        tell(WAITS)
        self._do("start")
        self.running = True

    def stop(self) -> None:
        self.running = False
        self._do("stop")

    def interrupt(self) -> bool:
        self._do("interrupt")
        return True

    def heal(self) -> str:
        self._do("heal")
        return "All were healed"

    def status(self) -> str:
        return "2 processes: ready"

    def ask_idle(self, *_: Any, processes: Iterable[int], within_s: float) -> dict[int, Any]:
        assert ([*processes], within_s) == ([0, 1], PATIENCE_S)
        return {0: False, 1: False}

    def to_replay(self, replay: bool | str) -> str:
        return "2 cells" if replay is True else f"those of {replay}"

    def restart(
        self,
        replay: bool | str,
        keep_going: bool,
        watcher: object,
        tell: Callable[[str], object],
    ) -> Result | None:
        assert watcher is not None
        tell(WAITS)
        self._do("restart", replay, *["keep going"] * keep_going)
        return self.failed

    def push(self, values: dict[str, Any]) -> None:
        self._do("push", values)

    def failed_process(self) -> int:
        return 1

    def debug(self, command: str, process: int | None = None) -> DebuggerAnswer:
        self._do("debug", command, process)
        return DebuggerAnswer(f"<{command}>\n", command == "q")

    def pull(self, name: str) -> dict[int, Any]:
        self._do("pull", name)
        return dict.fromkeys(range(2), name)

    def run(self, source: str, watcher: object, **given: Any) -> Result:
        assert watcher is not None
        self._do(source, given)
        self.last = self.result
        return self.result


class View:
    """The live view: what it shows now, and all that it has shown."""

    def __init__(self, count: int = 0, looked_at: bool = True) -> None:
        self.now = ""
        self.shown: list[str] = []

    def show(self, text: str) -> None:
        self.now = text
        self.shown.append(text)

    def remove(self) -> None:
        self.now = ""


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> View:
    view = View()
    monkeypatch.setattr(module, "LiveView", lambda count, looked_at: view)
    return view


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, view: View) -> list[FakeCluster]:
    """The clusters that the magics have made; none is running before."""
    made: list[FakeCluster] = []

    def of(options: Options) -> FakeCluster:
        made.append(FakeCluster(options))
        return made[-1]

    def connect(devices_per_process: int = 2, **given: Any) -> FakeCluster:
        options = Options(2, devices_per_process, launcher=CONNECTED, **given)
        made.append(FakeCluster(options, running=True))
        return made[-1]

    monkeypatch.setattr(module, "Cluster", SimpleNamespace(of=of))
    monkeypatch.setattr(module, "connect", connect)
    monkeypatch.setattr(clusters, "current", None)
    return made


@pytest.fixture
def magics(made: list[FakeCluster]) -> McjaxMagics:
    """The magics in a shell whose next cell is number 7."""
    prompt = SimpleNamespace(prompt_count=7)
    return McjaxMagics(
        SimpleNamespace(displayhook=prompt, user_ns={}, var_expand=lambda line, depth: line)
    )


@pytest.fixture
def cluster(magics: McjaxMagics, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """The cluster that the magics control."""
    cluster = FakeCluster(Options(2, 3), running=True)
    monkeypatch.setattr(clusters, "current", cluster)
    return cluster


Captured = pytest.CaptureFixture[str]
MINE = ProcessError("ValueError", "mine", 2, "ValueError: mine")


def interrupt(call: Callable[..., object], *words: str) -> str:
    """Let a magic be interrupted, and return what the notebook shows of that."""
    with pytest.raises(KeyboardInterrupt) as caught:
        call(*words)
    error: Any = caught.value
    assert error._render_traceback_() == [f"KeyboardInterrupt: {error}"]
    return str(error)


def test_a_start_is_what_was_asked_for(
    magics: McjaxMagics, made: list[FakeCluster], view: View, capsys: Captured
) -> None:
    magics.mcjax("start -n 2 -d 3 --env A=1 --unchecked")
    assert [one.options for one in made] == [Options(2, 3, env={"A": "1"}, checked=False)]
    assert (made[0].done, clusters.current) == (["start"], made[0])
    assert capsys.readouterr().out == f"Ready: {TWO}\n"
    assert (view.shown, view.now) == (
        [f"Starting {TWO} …", f"Starting {TWO} …\n{WAITS}"],
        "",
    )


def test_what_runs_already_is_not_started_again(
    magics: McjaxMagics, cluster: FakeCluster, made: list[FakeCluster], capsys: Captured
) -> None:
    magics.mcjax("start -n 2 -d 3")
    assert capsys.readouterr().out == f"Ready: {TWO} (already running)\n"
    for line, difference in (("-n 3 -d 3", ""), ("-n 2 -d 3 --values", ", with other settings")):
        with pytest.raises(ClusterError) as caught:
            magics.mcjax(f"start {line}")
        assert str(caught.value) == (
            f"A cluster of {TWO} is already running{difference}. To start another one, stop this "
            "one first: %mcjax stop"
        )
    assert (made, cluster.done) == ([], [])
    cluster.running = False
    magics.mcjax("start -n 2")
    assert [one.done for one in made] == [["start"]]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (
            {"recovering": True, "running": True, "last": result_of()},
            "The processes are still being started. The next cell waits for them",
        ),
        (
            {"running": True, "last": result_of(interrupted=True, stopped={0: 1, 1: 1})},
            "The replay was interrupted. Both processes (line 1) were interrupted. All variables "
            "are kept",
        ),
        ({"running": True, "last": result_of()}, "The replay was interrupted"),
        (
            {"running": False, "last": result_of()},
            "The start was interrupted. The cluster has no processes and no variables. To start "
            "it: %mcjax start",
        ),
    ],
)
def test_an_interrupted_restart_says_what_there_is(
    state: dict[str, Any], said: str, magics: McjaxMagics, cluster: FakeCluster, view: View
) -> None:
    cluster.error = KeyboardInterrupt()
    for name, value in state.items():
        setattr(cluster, name, value)
    assert interrupt(magics.mcjax, "restart") == said
    assert view.now == ""


def test_a_restart_loses_the_variables(
    magics: McjaxMagics, cluster: FakeCluster, view: View, capsys: Captured
) -> None:
    magics.mcjax("restart")
    assert cluster.done == [("restart", False)]
    assert capsys.readouterr().out == f"Ready: {TWO}. The variables are lost\n"
    assert (view.shown, view.now) == (
        [f"Starting {TWO} …", f"Starting {TWO} …\n{WAITS}"],
        "",
    )


def test_a_replay_says_what_it_ran(
    magics: McjaxMagics, cluster: FakeCluster, view: View, capsys: Captured
) -> None:
    magics.mcjax("restart --replay")
    assert cluster.done == [("restart", True)]
    assert capsys.readouterr().out == f"2 cells ran again\nReady: {TWO}\n"
    starting = f"Starting {TWO}, then replaying 2 cells …"
    assert view.shown == [starting, f"{starting}\n{WAITS}"]
    magics.mcjax("restart --keep-going --replay In[1-5],In[8]")
    assert cluster.done[-1] == ("restart", "In[1-5],In[8]", "keep going")
    assert view.shown[2] == f"Starting {TWO}, then replaying those of In[1-5],In[8] …"
    with pytest.raises(OptionError) as caught:
        magics.mcjax("restart --keep-going")
    assert str(caught.value) == ("%mcjax restart --keep-going: only with --replay. Help: %mcjax?")


def test_a_replay_that_fails_shows_its_cell(
    magics: McjaxMagics, cluster: FakeCluster, capsys: Captured
) -> None:
    cluster.failed = result_of(MINE, MINE, said="before\n")
    with pytest.raises(CellError, match="both processes raised ValueError: mine"):
        magics.mcjax("restart --replay")
    assert capsys.readouterr().out.startswith("2 cells ran again\n[all 2] before\n")


def test_a_stop_says_what_became_of_the_processes(
    magics: McjaxMagics, cluster: FakeCluster, capsys: Captured
) -> None:
    magics.mcjax("stop")
    magics.mcjax("stop")
    assert cluster.done == ["stop"]
    assert capsys.readouterr().out == (
        f"Stopped: {TWO}\nNothing to stop: the cluster ({TWO}) has no processes\n"
    )
    cluster.running, cluster.error = True, KeyboardInterrupt()
    assert interrupt(magics.mcjax, "stop") == f"Stopped: {TWO}"


def test_engines_of_others_are_connected_once_and_left_running(
    magics: McjaxMagics, made: list[FakeCluster], capsys: Captured
) -> None:
    magics.mcjax("connect -d 3 --profile mine --env A=1")
    [theirs] = made
    assert clusters.current is theirs
    assert (theirs.options.profile, theirs.options.env) == ("mine", {"A": "1"})
    magics.mcjax("connect")
    magics.mcjax("stop")
    assert capsys.readouterr().out == (
        f"Ready: {TWO}\nAlready connected: {TWO}\n"
        f"Disconnected from {TWO}. The processes still run, but you can't connect to them again. "
        "To end them: ipcluster stop\n"
    )
    assert theirs.done == ["stop"]
    magics.mcjax("connect")
    assert len(made) == 2


def test_processes_of_ours_are_not_left_for_those_of_others(
    magics: McjaxMagics, cluster: FakeCluster, made: list[FakeCluster]
) -> None:
    with pytest.raises(ClusterError) as caught:
        magics.mcjax("connect")
    assert str(caught.value) == (
        f"A cluster of {TWO} is already running. To start another one, stop this one first: "
        "%mcjax stop"
    )
    assert (made, clusters.current) == ([], cluster)


def test_the_other_commands(magics: McjaxMagics, cluster: FakeCluster, capsys: Captured) -> None:
    for line in ("", "status", "interrupt", "heal"):
        magics.mcjax(line)
    assert cluster.done == ["interrupt", "heal"]
    assert capsys.readouterr().out == (
        "2 processes: ready\n2 processes: ready\nThe running cell is interrupted\nAll were healed\n"
    )
    cluster.error = KeyboardInterrupt()
    assert interrupt(magics.mcjax, "heal") == (
        "The interrupt had no effect: the cluster was healed"
    )


def test_variables_of_the_notebook_are_put_into_a_line_but_not_into_an_expression(
    cluster: FakeCluster, capsys: Captured
) -> None:
    shell = InteractiveShell(config=Config(HistoryManager={"enabled": False}))
    shell.register_magics(McjaxMagics(shell))
    lines = ["k, name = 1, 'x'", "%mcjax debug p f'{k}', $k", "%mcjax pull {name}"]
    inside = ["def f():", "    own = 'y'", "    %mcjax pull $own", "f()"]
    shell.run_cell("\n".join([*lines, *inside])).raise_error()
    assert cluster.done == [("debug", "p f'{k}', $k", None), ("pull", "x"), ("pull", "y")]
    assert capsys.readouterr().out.startswith("<p f'{k}', $k>\nx: a dictionary")


def test_there_is_no_cluster_yet(magics: McjaxMagics, capsys: Captured) -> None:
    magics.mcjax("")
    assert capsys.readouterr().out == "No cluster yet. Start one: %mcjax start\n"
    for line in ("interrupt", "heal", "restart", "stop", "log", "timeline"):
        with pytest.raises(ClusterError) as caught:
            magics.mcjax(line)
        assert str(caught.value) == ("There is no cluster yet. Start one: %mcjax start -n 4 -d 2")


def test_the_last_output_again(magics: McjaxMagics, cluster: FakeCluster, capsys: Captured) -> None:
    with pytest.raises(ClusterError) as caught:
        magics.mcjax("last")
    assert str(caught.value) == "No cell has run yet. First run a cell that begins with %%mcjax"
    cluster.last = result_of(said="hello\n")
    magics.mcjax("last")
    assert capsys.readouterr() == ("[all 2] hello\n", "")
    error = ProcessError("ValueError", "no", 3, "the traceback")
    cluster.last = result_of(error, error, said="hello\n")
    magics.mcjax("last")
    out, err = capsys.readouterr()
    assert out == "[all 2] hello\n"
    assert err == "[all 2] ValueError in line 3\nthe traceback\n"


def test_the_kernels_own_jax_is_noted_once(
    magics: McjaxMagics,
    cluster: FakeCluster,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def end(cell: str) -> str:
        magics.end_cell(SimpleNamespace(info=SimpleNamespace(raw_cell=cell), error_in_exec=None))
        return capsys.readouterr().err

    note = (
        "Note: this cell used the notebook kernel's own JAX, with devices of its own. To run a "
        "cell on the 2 processes, begin it with %%mcjax\n"
    )
    looks = [False]
    monkeypatch.setattr("mcnb.notebook.magics.somebody_looks", lambda shell: looks[0])
    assert end("import jax") == ""  # nobody would read it
    looks[0] = True
    cluster.running = False
    assert end("import jax") == ""
    cluster.running = True
    assert end("# first\n%%mcjax\nimport jax") == end("import jaxtyping") == ""
    assert end("x = 1\nfrom jax import numpy as jnp") == note
    assert end("import jax") == ""


def test_variables_are_copied(magics: McjaxMagics, cluster: FakeCluster, capsys: Captured) -> None:
    magics.shell.user_ns.update(batch=[1], scale=2)
    magics.mcjax("push batch, scale")
    magics.mcjax("push batch")
    magics.mcjax("pull loss")
    assert cluster.done == [
        ("push", {"batch": [1], "scale": 2}),
        ("push", {"batch": [1]}),
        ("pull", "loss"),
    ]
    assert magics.shell.user_ns["loss"] == {0: "loss", 1: "loss"}
    assert capsys.readouterr().out == (
        "batch, scale are on both processes now\n"
        "batch is on both processes now\n"
        "loss: a dictionary with the value on each process, such as loss[0]\n"
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "push",
            "%mcjax push: the variable's name is missing. For example: %mcjax push params",
        ),
        (
            "pull",
            "%mcjax pull: the variable's name is missing. For example: %mcjax pull params",
        ),
        (
            "pull a b.c",
            "%mcjax pull a b.c: b.c is not the name of a variable. Its value: "
            "mcnb.current_cluster().pull('b.c')",
        ),
        ("push nobody", "%mcjax push nobody: nobody is not defined in the notebook kernel"),
    ],
)
def test_variables_that_are_not_copied(magics: McjaxMagics, line: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        magics.mcjax(line)
    assert str(caught.value) == said


def test_the_log_and_the_timeline_are_those_of_the_last_cell(
    magics: McjaxMagics,
    cluster: FakeCluster,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for line in ("log", "timeline"):
        with pytest.raises(ClusterError) as caught:
            magics.mcjax(line)
        assert str(caught.value) == (
            "No cell has run yet. First run a cell that begins with %%mcjax"
        )
    cluster.last = result_of()
    magics.mcjax("log")
    assert capsys.readouterr().out == "The last cell launched nothing that spans processes\n"
    record = LaunchRecord(0, launch("sum", "1", participants=(0, 1)), 3, 1.0, 1.5)
    cluster.last = Result({0: Reply(launches=(record,)), 1: Reply()}, 2)
    magics.mcjax("log")
    assert capsys.readouterr().out == f"{log_text(cluster.last.launches, 2)}\n"
    cluster.last = Result({0: Reply(launches=(record,) * 3), 1: Reply()}, 2)
    magics.mcjax("log")
    assert capsys.readouterr().out == f"{log_text([record] * 3, 2)}\n"
    magics.mcjax("log --full")
    assert capsys.readouterr().out == f"{log_text([record] * 3, 2, full=True)}\n"
    drawn: list[Any] = []
    monkeypatch.setattr(module, "display", drawn.append)
    monkeypatch.setattr(Result, "timeline", lambda self, **given: (self is cluster.last, given))
    for line in ("", "--order", "--step 3", "--from 2", "--to 9 --from 4", "--to 5 --order"):
        magics.mcjax(f"timeline {line}")
    assert drawn == [
        (True, {"order": False, "steps": None}),
        (True, {"order": True, "steps": None}),
        (True, {"order": False, "steps": 3}),
        (True, {"order": False, "steps": (2, None)}),
        (True, {"order": False, "steps": (4, 9)}),
        (True, {"order": True, "steps": (None, 5)}),
    ]
    with pytest.raises(OptionError) as both:
        magics.mcjax("timeline --step 3 --to 4")
    assert str(both.value) == "--step 3 is one step; for several, use --from and --to only"
    with pytest.raises(OptionError) as none:
        magics.mcjax("timeline --step 0")
    assert str(none.value) == (
        "--step 0: the number of a step is a whole number from 1 to 1000000000. "
        "For example: --step 20"
    )


def test_one_command_of_the_debugger(
    magics: McjaxMagics, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in ("debug where", "debug -p 1 p x['a -p 0']", "debug --process=0 -1", "debug p -p"):
        magics.mcjax(line)
    assert cluster.done == [
        ("debug", "where", None),
        ("debug", "p x['a -p 0']", 1),
        ("debug", "-1", 0),
        ("debug", "p -p", None),
    ]
    assert capsys.readouterr().out == "<where>\n<p x['a -p 0']>\n<-1>\n<p -p>\n"


@pytest.mark.parametrize("leaves", ["q", EOFError(), KeyboardInterrupt()])
def test_a_person_types_at_the_debugger(
    magics: McjaxMagics,
    cluster: FakeCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    leaves: str | BaseException,
) -> None:
    typed: list[Any] = ["p x", "", leaves, "never"]
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        line = typed.pop(0)
        if isinstance(line, BaseException):
            raise line
        return str(line)

    monkeypatch.setattr(module, "input", answer, raising=False)
    monkeypatch.setattr(module, "somebody_looks", lambda shell: True)
    magics.mcjax("debug")
    commands = ["where", "p x", "", *["q"] * (leaves == "q")]
    assert cluster.done == [("debug", command, 1) for command in commands]
    assert capsys.readouterr().out == "".join(f"<{command}>\n" for command in commands)
    assert asked == ["process 1 (pdb) "] * 3
    assert typed == ["never"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("debug -p 5 where", "-p 5: there is no process 5. This cluster has 2 processes: 0 to 1"),
        ("debug -p 0-1 where", "-p 0-1: name one process. For example: -p 0"),
        (
            "debug",
            "%mcjax debug: nobody can type here. Give the command of the debugger with it, for "
            "example: %mcjax debug where",
        ),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_what_the_debugger_refuses(
    magics: McjaxMagics, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.setattr(module, "somebody_looks", lambda shell: False)
    assert sentence(magics.mcjax, line) == said


@pytest.mark.usefixtures("cluster")
def test_ipythons_debug_leads_to_the_processes(
    magics: McjaxMagics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "somebody_looks", lambda shell: False)
    given: list[Any] = []
    own = given.append
    magics.debugger(own, "an error of the notebook kernel")
    monkeypatch.setattr(sys, "last_value", CellError("process 0 raised"), raising=False)
    with pytest.raises(OptionError):
        magics.debugger(own, "an error of the processes")
    assert given == ["an error of the notebook kernel"]


def test_ipythons_debug_leads_there_after_a_refused_command(
    magics: McjaxMagics, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "somebody_looks", lambda shell: False)
    monkeypatch.setattr(sys, "last_value", OptionError("no command sttaus"), raising=False)
    given: list[Any] = []
    magics.debugger(given.append, "no cell has failed")
    error = ProcessError("ValueError", "", 1, "")
    monkeypatch.setattr(cluster, "last", Result({0: Reply(error=error)}, 2), raising=False)
    with pytest.raises(OptionError):
        magics.debugger(given.append, "a cell has")
    assert given == ["no cell has failed"]


@pytest.mark.parametrize("line", ["--help", "help", "start --help", "compare -h", "debug --help"])
def test_each_command_shows_the_help(
    magics: McjaxMagics, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    shown: list[tuple[str, str]] = []
    monkeypatch.setattr(
        magics.shell, "run_line_magic", lambda *words: shown.append(words), raising=False
    )
    assert magics.mcjax(line) is None
    assert shown == [("pinfo", "%mcjax")]


def sentence(call: Callable[..., object], *words: str) -> str:
    with pytest.raises(OptionError) as caught:
        call(*words)
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "strat -n 2",
            "%mcjax strat -n 2: there is no command strat. Did you mean start? Commands: start, "
            "connect, run, auto, status, last, log, vars, compare, debug, push, pull, "
            "timeline, interrupt, heal, restart, stop. Help: %mcjax?",
        ),
        (
            "xyz",
            "%mcjax xyz: there is no command xyz. Commands: start, connect, run, auto, status, "
            "last, log, vars, compare, debug, push, pull, timeline, interrupt, heal, restart, "
            "stop. Help: %mcjax?",
        ),
        (
            "stop --replay",
            "%mcjax stop --replay: --replay is only accepted by %mcjax restart. Help: %mcjax?",
        ),
        (
            "connect --hosts one",
            "%mcjax connect --hosts one: --hosts is only accepted by %mcjax start. Help: %mcjax?",
        ),
        (
            "restart --fast",
            "%mcjax restart --fast: there is no option --fast. Options: --replay, --keep-going. "
            "Help: %mcjax?",
        ),
        (
            "start -n",
            "%mcjax start -n: -n/--processes: expected one argument. Help: %mcjax?",
        ),
        ("start --env 'A=1", "%mcjax start --env 'A=1: No closing quotation. Help: %mcjax?"),
    ],
)
def test_a_line_that_cannot_be_done(
    line: str, said: str, magics: McjaxMagics, made: list[FakeCluster]
) -> None:
    assert sentence(magics.mcjax, line) == said
    assert made == []


def test_a_cell_is_run_as_its_line_says(
    magics: McjaxMagics, cluster: FakeCluster, view: View, capsys: Captured
) -> None:
    cluster.result = result_of(said="mine\n")
    magics.mcjax_cell("-p 0,1 --unchecked --no-values --timeout 3", "x = 1")
    magics.mcjax_cell("", "y")
    assert cluster.done == [
        (
            "x = 1",
            {
                "processes": "0,1",
                "label": "7",
                "first_line": 2,
                "checked": False,
                "values": False,
                "timeout": "3",
                "cell_id": "",
                "debugger": None,
            },
        ),
        (
            "y",
            {
                "processes": None,
                "label": "7",
                "first_line": 2,
                "timeout": None,
                "cell_id": "",
                "debugger": None,
            },
        ),
    ]
    assert capsys.readouterr().out == "[all 2] mine\n" * 2
    assert (view.shown, view.now) == ([], "")


RUNS_ON_ALL = (
    "Every cell runs on the processes, except those that begin with %%here, another cell magic or "
    "%mcjax\n"
)
RUNS_HERE = "Cells run in the notebook kernel, except those that begin with %%mcjax\n"


def test_auto_runs_cells_without_a_magic_on_the_processes(
    magics: McjaxMagics, cluster: FakeCluster, capsys: Captured
) -> None:
    def lines(cell: str) -> list[Any]:
        """What runs on the processes of a cell, and the number of its first line."""
        cluster.done.clear()
        changed = "".join(magics.transform(cell.splitlines(keepends=True)))
        magics.begin_cell(SimpleNamespace(raw_cell=cell))
        assert magics.transform(["x\n"]) == ["x\n"]  # what a magic such as %%time transforms
        if changed.startswith("%%mcjax"):
            line, _, body = changed.partition("\n")
            magics.mcjax_cell(line.removeprefix("%%mcjax"), body)
        magics.end_cell(SimpleNamespace(info=None, error_in_exec=None))
        return [(source, given["first_line"]) for source, given in cluster.done]

    for told, auto in ("", False), ("on", True), ("", True), ("off", False):
        magics.mcjax(f"auto {told}")
        assert capsys.readouterr().out == (RUNS_ON_ALL if auto else RUNS_HERE)
        assert lines("x = 1\ny = 2\n") == ([("x = 1\ny = 2\n", 1)] if auto else [])
        assert lines("# Train.\n%%mcjax -p 0\nx") == [("# Train.\nx", 2)]
        for cell in ("%%here\nx", "%%time\nx", "%mcjax auto off", "%load_ext mcnb", "\n"):
            assert lines(cell) == []
    with pytest.raises(OptionError) as caught:
        magics.mcjax("auto yes")
    assert str(caught.value) == ("%mcjax auto yes: expected on or off. For example: %mcjax auto on")


def test_cells_of_a_front_end_stay_in_the_kernel(magics: McjaxMagics) -> None:
    content: dict[str, bool] = {}
    magics.shell.kernel = SimpleNamespace(get_parent=lambda channel: {"content": content})
    magics.auto = True
    assert magics.transform(["x\n"]) == ["%%mcjax\n", "x\n"]
    for hidden in {"silent": True}, {"store_history": False}:
        content.clear()
        content.update(hidden)
        assert magics.transform(["x\n"]) == ["x\n"]


def test_a_cell_here_takes_no_words(magics: McjaxMagics) -> None:
    ran: list[str] = []
    magics.shell.run_cell = ran.append
    with pytest.raises(OptionError) as caught:
        magics.here("-p 0", "x")
    assert str(caught.value) == "%%here -p 0: expected nothing after %%here"
    magics.here("", "x")
    assert ran == ["x"]


def test_what_is_written_without_auto(magics: McjaxMagics) -> None:
    assert with_magic("%%here\n%%time\nx", auto=True) == "%%time\nx"
    assert with_magic("# a\n%%here  # why\nx", auto=False) == "# a\n\nx"
    assert with_magic("%%here", auto=True) == "\n"
    assert with_magic("%%hereby\nx", auto=True) == "%%hereby\nx"
    assert with_magic("# a\n%%mcjax\nx", auto=True) == "%%mcjax\n# a\nx"


def test_the_first_cell_starts_a_cluster(magics: McjaxMagics, made: list[FakeCluster]) -> None:
    magics.mcjax_cell("", "x")
    magics.mcjax_cell("", "y")
    [one] = made
    assert one.options == Options()
    assert [done if isinstance(done, str) else done[0] for done in one.done] == ["start", "x", "y"]


def test_a_cell_that_waits_for_processes_says_so(
    magics: McjaxMagics, cluster: FakeCluster, view: View
) -> None:
    cluster.recovering = True
    magics.mcjax_cell("", "x")
    assert (view.shown, view.now) == (
        ["The processes are being restarted. The cell runs when they are ready …"],
        "",
    )


UNKNOWN = ProcessError("NameError", "name 'x' is not defined", 2, "NameError", "x")
RUN_FIRST = "Hint: first run the %%mcjax cell that defines x"


def test_a_cell_that_fails_shows_its_output_and_its_error(
    magics: McjaxMagics, cluster: FakeCluster, view: View, capsys: Captured
) -> None:
    cluster.result = result_of(MINE, MINE, said="before\n")
    view.show("progress")
    with pytest.raises(CellError) as caught:
        magics.mcjax_cell("", "x")
    assert str(caught.value) == "both processes raised ValueError: mine (line 2)"
    assert (capsys.readouterr().out, view.now) == ("[all 2] before\n", "")
    assert not any(line.startswith("Hint") for line in caught.value.lines)
    cluster.result = result_of(UNKNOWN, UNKNOWN)
    with pytest.raises(CellError) as caught:
        magics.mcjax_cell("", "x")
    assert caught.value.lines[-2:] == ["", RUN_FIRST]


def test_an_interrupted_cell_says_what_was_done(
    magics: McjaxMagics, cluster: FakeCluster, view: View, capsys: Captured
) -> None:
    cluster.result = result_of(said="before\n", interrupted=True, stopped={0: 1, 1: 1})
    view.show("progress")
    assert interrupt(magics.mcjax_cell, "", "x") == (
        "Both processes (line 1) were interrupted. All variables are kept"
    )
    assert (capsys.readouterr().out, view.now) == ("[all 2] before\n", "")


def test_a_cell_that_is_interrupted_before_it_runs(
    magics: McjaxMagics, cluster: FakeCluster, view: View
) -> None:
    cluster.last = result_of(said="of the cell before\n")
    cluster.error = KeyboardInterrupt()
    view.show("progress")
    assert interrupt(magics.mcjax_cell, "", "x") == "The cell did not run"
    assert view.now == ""


def test_an_interrupt_that_comes_when_the_cell_has_ended(
    magics: McjaxMagics,
    cluster: FakeCluster,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(source: str, **_: Any) -> Result:
        cluster.last = result_of(said="done\n")
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "run", run)
    assert interrupt(magics.mcjax_cell, "", "x") == (
        "The cell had ended before it could be interrupted"
    )
    assert capsys.readouterr().out == "[all 2] done\n"


def test_cells_without_a_history_are_counted_too(magics: McjaxMagics, cluster: FakeCluster) -> None:
    for stored in (True, False, False, True):
        magics.begin_cell(SimpleNamespace(store_history=stored))
        magics.mcjax_cell("", "x")
    magics.begin_cell()
    assert magics.number == 7
    assert [done[1]["label"] for done in cluster.done] == ["7", "8", "9", "7"]


class Shell:
    """A shell, in which magics can be registered."""

    def __init__(self) -> None:
        self.displayhook = SimpleNamespace(prompt_count=1)
        self.callbacks: list[Any] = []
        self.events = SimpleNamespace(
            register=lambda name, call: self.callbacks.append((name, call)),
            unregister=lambda name, call: self.callbacks.remove((name, call)),
        )
        self.magics_manager = SimpleNamespace(
            registry={}, magics={"line": {"mcjax": 1, "time": 2}, "cell": {"mcjax": 3}}
        )
        self.completions: dict[str, list[str]] = {}
        self.Completer = SimpleNamespace(custom_matchers=[])
        self.input_transformers_cleanup: list[Any] = []

    def debugger(self, force: bool = False) -> str:
        return f"IPython's own, forced: {force}"

    def register_magics(self, magics: McjaxMagics) -> None:
        self.magics_manager.registry[type(magics).__name__] = magics

    def set_hook(self, name: str, hook: Callable[..., list[str]], str_key: str) -> None:
        assert name == "complete_command"
        self.completions[str_key] = hook(None, None)


def test_unloading_leaves_nothing(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(module, "close_idle", lambda: closed.append(True))
    shell = Shell()
    register(shell)
    assert [name for name, _ in shell.callbacks] == ["pre_run_cell", "post_run_cell"]
    assert len(shell.input_transformers_cleanup) == len(shell.Completer.custom_matchers) == 1
    assert {"start", "stop", "--replay", "-n"} <= {*shell.completions["%mcjax"]}
    assert "--timeout" in shell.completions["%%mcjax"]
    assert "start" not in shell.completions["%%mcjax"]
    assert shell.debugger(force=True) == "IPython's own, forced: True"
    unregister(shell)
    assert "debugger" not in vars(shell)
    assert (cluster.done, clusters.current, closed) == (["stop"], None, [True])
    assert shell.callbacks == shell.input_transformers_cleanup == []
    assert shell.Completer.custom_matchers == []
    assert shell.magics_manager.magics == {"line": {"time": 2}, "cell": {}}
    unregister(shell)  # without a cluster, and a second time
    assert cluster.done == ["stop"]


@pytest.mark.parametrize(
    ("cell", "commands", "below"),
    [
        ("%mcjax start", ["start"], [False]),
        ("%mcjax restart\n%mcjax restart", ["restart", "restart"], [False, True]),
        ("%mcjax stop\n%mcjax start -n 3 -d 1", ["stop", "start -n 3 -d 1"], [True]),
        ("print(1)\n%mcjax restart", ["restart"], [True]),
        ("for _ in range(2):\n    %mcjax restart", ["restart", "restart"], [True, True]),
        ("# Begin.\n\nimport mcnb\n%mcjax restart", ["restart"], [False]),
        # It says that it is loaded already.
        ("%load_ext mcnb\n%mcjax restart", ["restart"], [True]),
    ],
)
def test_whether_the_cell_may_have_output_above_a_live_view(
    cell: str,
    commands: list[str],
    below: list[bool],
    magics: McjaxMagics,
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[bool] = []
    monkeypatch.setattr(module, "place_of", lambda *_, below: given.append(below))
    monkeypatch.setattr(live, "request_of", lambda _: ("one", cell))
    cluster.running = cell != "%mcjax start"
    monkeypatch.setattr(magics.shell, "kernel", None, raising=False)
    magics.begin_cell(SimpleNamespace(raw_cell=cell, store_history=True))
    for command in commands:
        magics.mcjax(command)
    assert given == below


def test_a_cell_that_loads_the_magics_outputs_nothing_before_them(
    magics: McjaxMagics, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IPython's event of such a cell came before there was somebody to hear of it."""
    given: list[bool] = []
    monkeypatch.setattr(module, "place_of", lambda *_, below: given.append(below))
    cell = "%load_ext mcnb\n%mcjax restart"
    monkeypatch.setattr(live, "request_of", lambda _: ("one", cell))
    magics.mcjax("restart")
    assert given == [False]


def test_a_cell_on_the_processes_has_no_output_above_its_live_view(
    magics: McjaxMagics, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[bool] = []
    monkeypatch.setattr(module, "place_of", lambda *_, below: given.append(below))
    monkeypatch.setattr(module, "somebody_looks", lambda _: False)
    for number, cell in enumerate(("%%mcjax\nx = 1", "# On them.\n%%mcjax\nx = 1")):
        monkeypatch.setattr(live, "request_of", lambda _, one=(str(number), cell): one)
        magics.begin_cell(SimpleNamespace(raw_cell=cell, store_history=True))
        magics.mcjax_cell("", "x = 1")
    assert given == [False, False]
