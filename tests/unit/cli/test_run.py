"""`mcnb run` without its processes: the command line, what is shown, and how all of them end."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from mcnb.cli import notebook as notebooks
from mcnb.cli import run as runs
from mcnb.cli.main import main as mcnb
from mcnb.cli.run import USAGE, Command, Lines, Running, labelled, main, parse
from mcnb.errors import OptionError
from mcnb.export import parse as parsing
from mcnb.lockstep.ranks import PROCESS, PROCESSES
from mcnb.lockstep.runner import COORDINATOR, REFEREE, REPORT, Ending, Program
from mcnb.options import Options

HANG_S = 120.0
OTHERS = "-n, -d, --platform, --env, --fold, --unchecked, --values, --no-values"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a program."""
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


TRAIN = Program("train.py")


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("train.py", Command(TRAIN, (), Options(), fold=False)),
        ("-n 3 train.py -d 1 --fold", Command(TRAIN, (), Options(3, 1), fold=True)),
        (
            "train.py -n=3 --steps 9 -n 5",
            Command(TRAIN, ("--steps", "9", "-n", "5"), Options(3), False),
        ),
        ("train.py -- -n 3", Command(TRAIN, ("-n", "3"), Options(), fold=False)),
        ("train.py --processes 3", Command(TRAIN, ("--processes", "3"), Options(), fold=False)),
        ("train.py a -- b", Command(TRAIN, ("a", "--", "b"), Options(), fold=False)),
        ("train.py -m", Command(TRAIN, ("-m",), Options(), fold=False)),
        (
            "--unchecked --values --platform cuda train.py",
            Command(TRAIN, (), Options(platform="cuda", checked=False, values=True), fold=False),
        ),
        (
            "--env A=1=2 --no-values train.py --env=B=3",
            Command(TRAIN, (), Options(env={"A": "1=2", "B": "3"}, values=False), fold=False),
        ),
        (
            "-n 2 -m trainer.main -n 3 -- x",
            Command(Program("trainer.main", True), ("-n", "3", "--", "x"), Options(2), fold=False),
        ),
    ],
)
def test_which_words_are_whose(line: str, command: Command, folder: Path) -> None:
    assert parse(line.split()) == command


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "mcnb run: the program's file is missing. For example: mcnb run train.py -n 4 -d 2"),
        (
            "-n 3",
            "mcnb run: the program's file is missing. For example: mcnb run train.py -n 4 -d 2",
        ),
        ("none.py", "mcnb run none.py: there is no such file"),
        (
            "-n 2 .",
            "mcnb run .: it is a folder. A program's file is needed: mcnb run train.py -n 4 -d 2",
        ),
        ("train.py -n", "mcnb run -n: a value is missing. See mcnb run --help"),
        (
            "-n 2 -m",
            "mcnb run -m: the module's name is missing. For example: mcnb run -n 4 -m trainer.main",
        ),
        (
            "--folds train.py",
            f"mcnb run --folds: unknown option. Options: {OTHERS}. The program's own options "
            "follow its file. Did you mean --fold?",
        ),
        (
            "-x train.py",
            f"mcnb run -x: unknown option. Options: {OTHERS}. The program's own options follow "
            "its file",
        ),
        (
            "train.py -n 0",
            "-n 0: the number of processes is a whole number from 1 to 512. For example: -n 4",
        ),
        (
            "05_lockstep.md -n 2",
            "mcnb run 05_lockstep.md: a lesson starts its own processes, so no other arguments are "
            "allowed: mcnb run 05_lockstep.md",
        ),
        (
            "05_lockstep.md fast",
            "mcnb run 05_lockstep.md: a lesson starts its own processes, so no other arguments are "
            "allowed: mcnb run 05_lockstep.md",
        ),
    ],
)
def test_nonsense_gets_a_sentence(line: str, sentence: str, folder: Path) -> None:
    with pytest.raises(OptionError) as caught:
        parse(line.split())
    assert str(caught.value) == sentence


def test_help_is_mcnbs_only_in_front(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["--help"]) == main(["-h"]) == 0
    assert capsys.readouterr().out == f"{USAGE}\n" * 2
    monkeypatch.setattr(Running, "run", lambda self: len(self._command.arguments))
    assert main(["train.py", "--help", "-h"]) == 2


def test_mcnb_hands_on_the_words_of_its_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mcnb(["run", "--help"]) == 0
    assert capsys.readouterr().out == f"{USAGE}\n"
    assert mcnb(["run", "none.py"]) == 2
    assert capsys.readouterr() == ("", "mcnb run none.py: there is no such file\n")
    assert mcnb(["script", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: mcnb script LESSON [-o FILE.py]\n")


def test_a_lesson_is_executed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "mine.md").write_text("```python\n%load_ext mcnb\n```\n")
    monkeypatch.setattr(parsing, "run_lesson", lambda path, _: 7 if path == Path("mine.md") else 0)
    assert main(["mine.md"]) == 7
    monkeypatch.setattr(Running, "run", lambda self: 8)
    assert main(["-m", "mine.md"]) == 8  # a module of the package `mine`


def test_a_notebook_of_one_process_runs_on_several(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "mine.md").write_text("```python\nx = 1\n```\n")
    (folder / "marked.py").write_text("x = 1\n# %%\nx\n")
    (folder / "joins.py").write_text("# %%\nimport jax\njax.distributed.initialize()\n")
    ran: list[tuple[Path, int, Options]] = []

    def run(path: Path, notebook: Any, options: Options) -> int:
        ran.append((path, len(notebook.cells), options))
        return 7

    monkeypatch.setattr(notebooks, "run_on_processes", run)
    monkeypatch.setattr(Running, "run", lambda self: 8)
    assert main(["mine.md", "-n", "3", "--fold", "a", "{process}"]) == 7
    assert main(["marked.py", "-d", "1"]) == 7
    assert ran == [
        (Path("mine.md"), 1, Options(3, arguments=("a", "{process}"))),
        (Path("marked.py"), 2, Options(devices_per_process=1)),
    ]
    programs = "marked.py --", "marked.py a", "joins.py", "train.py"
    assert [main(words.split()) for words in programs] == [8] * 4


def test_lines_that_arrive_in_pieces() -> None:
    lines = Lines()
    data = "é 1\n\n2".encode()
    assert [lines.feed(data[:1]), lines.feed(data[1:4]), lines.feed(data[4:])] == [
        [],
        [],
        ["é 1", ""],
    ]
    assert lines.feed(b"", final=True) == ["2"]
    assert Lines().feed(b"whole\n", final=True) == ["whole"]
    assert Lines().feed(b"\xff\n") == ["\N{REPLACEMENT CHARACTER}"]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("loss 0.7", "[3]  loss 0.7"),
        ("", "[3]"),
        ("  10%\r  50%\r 100%", "[3]   100%"),
        ("  10%\r  50%\r", "[3]    50%"),
        ("ends with blanks  ", "[3]  ends with blanks"),
    ],
)
def test_labels_of_lines(line: str, shown: str) -> None:
    assert labelled([3], 16, line) == shown


def test_labels_are_as_wide_as_the_last_process_needs() -> None:
    assert [labelled([9], count, "a") for count in (10, 11)] == ["[9] a", "[9]  a"]


INTERRUPTED = Ending("interrupted", "KeyboardInterrupt", code=130)


class Faked:
    """A process of a program: it runs nothing, and ends as a test says.

    Args:
        out: What it writes to its stdout.
        err: What it writes to its stderr.
        ending: Its report; None if it sends none.
        status: Its exit code, or minus the signal that killed it; None if it does not end alone.
        obeys: Whether it ends when it is interrupted.
        interrupted: Its report when it is interrupted.
        at_poll: Called once, when somebody looks whether it has ended.
    """

    def __init__(
        self,
        out: str = "",
        err: str = "",
        ending: Ending | None = None,
        status: int | None = 0,
        obeys: bool = True,
        interrupted: Ending = INTERRUPTED,
        at_poll: Callable[[], object] | None = None,
    ) -> None:
        self.said = out, err
        self.ending, self.status, self.obeys, self.at_poll = ending, status, obeys, at_poll
        self.interrupted = interrupted
        self.returncode: int | None = None
        self.signals: list[str] = []
        self.times: list[float] = []
        self.pid = 0
        self.reaped = False
        self.at_signal: Callable[[], object] = lambda: None

    def start(self, pid: int, command: list[str], env: dict[str, str], report: int) -> Faked:
        self.pid, self.command, self.env = pid, command, env
        self._report: int | None = os.dup(report)
        streams = [os.pipe(), os.pipe()]
        for (_, write), text in zip(streams, self.said, strict=True):
            os.write(write, text.encode())
        self._open = [write for _, write in streams]
        self.stdout, self.stderr = (os.fdopen(read, "rb") for read, _ in streams)
        if self.ending is not None:
            self.report(self.ending)
        if self.status is not None:
            self.end(self.status)
        return self

    def report(self, ending: Ending) -> None:
        if self._report is not None:
            os.write(self._report, json.dumps(asdict(ending)).encode())
            os.close(self._report)
            self._report = None

    def end(self, status: int) -> None:
        if self.returncode is not None:
            return
        self.returncode = status
        if self._report is not None:
            os.close(self._report)
            self._report = None
        for stream in self._open:
            os.close(stream)

    def poll(self) -> int | None:
        at_poll, self.at_poll = self.at_poll, None
        if at_poll is not None:
            at_poll()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        assert self.returncode is not None
        self.reaped = True
        return self.returncode

    def send_signal(self, number: int, to: str = "") -> None:
        self.signals.append(to + signal.Signals(number).name)
        self.times.append(Quick.now_s)
        self.at_signal()
        if number == signal.SIGKILL:
            self.end(-number)
        elif self.obeys and number == signal.SIGINT:
            self.report(self.interrupted)
            self.end(self.interrupted.code)
        elif self.obeys:
            self.end(-number)


class Guarded:
    """The guard: the process groups that it would kill."""

    all: list[Guarded]

    def __init__(self) -> None:
        self.leaders: set[int] = set()
        self.left: set[int] | None = None
        Guarded.all.append(self)

    def add(self, leader: int) -> None:
        self.leaders.add(leader)

    def remove(self, leader: int) -> None:
        self.leaders.remove(leader)

    def close(self) -> None:
        self.left = self.leaders


class Quick:
    """A clock on which the others have half a second more at each look."""

    now_s = 0.0

    def __init__(self) -> None:
        self.passed_s = Quick.now_s = 0.0

    def tick(self, processes: Any) -> None:
        del processes
        self.passed_s += 0.5
        Quick.now_s = self.passed_s
        assert self.passed_s < HANG_S


Run = Callable[..., int]


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a program in processes that are none, with some options."""
    monkeypatch.setattr(runs, "TICK_S", 0.0)
    monkeypatch.setattr(runs, "Patience", Quick)
    monkeypatch.setattr(runs, "Guard", Guarded)
    monkeypatch.setattr(Guarded, "all", [], raising=False)
    monkeypatch.setattr(Quick, "now_s", 0.0)
    started: list[Faked] = []
    pids = itertools.count(10_000_001)

    def run(*processes: Faked | None, line: str = "train.py") -> int:
        left = iter(processes)

        def popen(command: list[str], **given: Any) -> Faked:
            [report] = given["pass_fds"]
            assert given["process_group"] == 0
            assert given["env"][REPORT] == str(report)
            if (process := next(left)) is None:
                raise OSError(11, "No room")
            started.append(process.start(next(pids), command, given["env"], report))
            return process

        def signal_group(leader: int, number: int) -> None:
            [process] = [one for one in started if one.pid == leader]
            process.send_signal(number, "group ")

        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", popen)
            patch.setattr(runs, "signal_group", signal_group)
            return Running(parse(["-n", str(len(processes)), *line.split()])).run()

    yield run
    assert all(process.reaped for process in started)
    for process in started:
        process.stdout.close()
        process.stderr.close()


def raised(text: str, line: int = 3) -> Ending:
    """Return the report of a program that raised an error."""
    said = f"Traceback:\n  line {line}\nValueError: {text}\n"
    return Ending("raised", f"ValueError: {text}", f"train.py:{line}", 1, said=said)


DONE = Ending()
Captured = pytest.CaptureFixture[str]


def test_all_go_well(run: Run, capfd: Captured) -> None:
    zero, one = Faked("a\nb", "no\n", DONE), Faked("c\n", ending=DONE)
    assert run(zero, one) == 0
    out, err = capfd.readouterr()
    assert (sorted(out.splitlines()), err) == (["[0] a", "[0] b", "[1] c"], "[0] no\n")
    # Their child processes, if any, were meant to stay.
    assert (zero.signals, one.signals, Guarded.all[0].left) == ([], [], set())


def test_what_each_process_is_given(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "yes")
    monkeypatch.setenv("JAX_PROCESS_ID", "9")
    monkeypatch.setenv("MPLBACKEND", "tkagg")
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    processes = [Faked(ending=DONE) for _ in range(2)]
    line = "-d 3 --env A={process}/{processes} --env B=b --unchecked --no-values train.py -- "
    assert run(*processes, line=f"{line}{{process}} of={{processes}}") == 0
    for k, process in enumerate(processes):
        assert process.command[1:] == [
            *("-m", "mcnb.lockstep", "--unchecked", "--no-values"),
            *("train.py", str(k), "of=2"),
        ]
        given = {
            "A": f"{k}/2",
            "B": "b",
            "MINE": "yes",
            "MPLBACKEND": "tkagg",  # that of the terminal
            "JAX_NUM_CPU_DEVICES": "3",
            "PYTHONUNBUFFERED": "1",
            PROCESS: str(k),
            PROCESSES: "2",
        }
        assert {name: process.env.get(name) for name in given} == given
        assert "JAX_PROCESS_ID" not in process.env
        for name in (REFEREE, COORDINATOR):
            assert process.env[name] == processes[0].env[name]
        assert process.env[COORDINATOR].startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("line", "backend", "flags"),
    [
        ("train.py", None, []),
        ("--values --env MPLBACKEND=agg -m trainer.main", "agg", ["--values"]),
    ],
)
def test_no_backend_of_a_notebook_and_no_flag_is_given_unasked(
    line: str, backend: str | None, flags: list[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MPLBACKEND", raising=False)
    process = Faked(ending=DONE)
    assert run(process, line=line) == 0
    program = line.split()[line.split().index("-m") :] if "-m" in line else ["train.py"]
    assert process.command[1:] == ["-m", "mcnb.lockstep", *flags, *program]
    assert process.env.get("MPLBACKEND") == backend


def test_one_that_fails_ends_the_others(run: Run, capfd: Captured) -> None:
    obeys, fails = Faked(status=None), Faked(ending=raised("mine"), status=1)
    assert run(obeys, fails) == 1
    assert capfd.readouterr() == (
        "",
        "[1] Traceback:\n[1]   line 3\n[1] ValueError: mine\n"
        "mcnb run: process 1 raised ValueError: mine (train.py:3). Then mcnb ended process 0\n",
    )
    # It is interrupted alone, and killed with all that it has started.
    assert (obeys.signals, obeys.times[0]) == (["SIGINT", "group SIGKILL"], 1.0)
    assert fails.signals == ["group SIGKILL"]
    assert Guarded.all[0].left == {obeys.pid, fails.pid}


def test_one_that_does_not_obey_is_killed(run: Run, capfd: Captured) -> None:
    stubborn = [Faked(status=None, obeys=False) for _ in range(2)]
    assert (
        run(*stubborn, Faked(ending=Ending("exit", "exit code 7", "train.py:2", 7), status=7)) == 7
    )
    assert capfd.readouterr().err == (
        "mcnb run: process 2 ended with exit code 7 (train.py:2). Then mcnb ended processes 0,1\n"
    )
    for process in stubborn:
        assert process.signals[:2] == ["SIGINT", "group SIGKILL"]
        assert process.times[:2] == [1.0, 6.5]


def test_one_that_is_killed_leaves_no_report(run: Run, capfd: Captured) -> None:
    other = Faked(status=None, interrupted=DONE)
    assert run(other, Faked(status=-9)) == 137
    assert other.signals[0] == "SIGINT"
    assert capfd.readouterr().err == (
        "mcnb run: process 1 was killed by SIGKILL (sent by a program, or by the system "
        "because memory ran out)\n"
    )


def test_a_finished_process_that_waits_in_its_shutdown_is_killed_and_succeeds(
    run: Run, capfd: Captured
) -> None:
    waits = Faked("a\n", ending=DONE, status=None, obeys=False)
    fails = Faked(ending=raised("mine"), status=1)
    assert run(waits, fails) == 1
    assert capfd.readouterr().err.splitlines()[-1] == (
        "mcnb run: process 1 raised ValueError: mine (train.py:3)"
    )
    assert (waits.signals[0], waits.times[0]) == ("group SIGKILL", 1.0)
    assert Guarded.all[0].left == {fails.pid}


def test_one_that_fails_and_does_not_end_is_killed(run: Run, capfd: Captured) -> None:
    ends = Ending("exit", "exit code 7", "train.py:2", 7)
    fails, other = Faked(ending=ends, status=None, obeys=False), Faked(status=None)
    assert run(other, fails) == 7
    assert capfd.readouterr().err == (
        "mcnb run: process 1 ended with exit code 7 (train.py:2). Then mcnb ended process 0\n"
    )
    assert (fails.signals[0], other.signals[0]) == ("group SIGKILL", "SIGINT")


def test_one_that_fails_while_it_is_ended_failed_by_itself(run: Run, capfd: Captured) -> None:
    other = Faked(status=None, interrupted=raised("late", 9))
    assert run(other, Faked(ending=raised("mine"), status=1)) == 1
    shown = capfd.readouterr().err
    assert "[0] ValueError: late\n" in shown
    assert shown.endswith("\nmcnb run: process 1 raised ValueError: mine (train.py:3)\n")


def test_process_0_is_ended_last(run: Run) -> None:
    """JAX's coordinator is there: without it, the others abort."""
    order: list[int] = []
    others = [Faked(status=None) for _ in range(3)]
    for k, process in enumerate(others):
        process.at_signal = lambda k=k: order.append(k)
    run(*others, Faked(status=-9))
    assert order[:3] == [2, 1, 0]


def test_a_process_that_cannot_be_started_ends_those_before_it(run: Run) -> None:
    first, before = Faked(status=None), signal.getsignal(signal.SIGTERM)
    with pytest.raises(OSError, match="No room"):
        run(first, None)
    assert (first.signals, first.reaped) == (["group SIGKILL"], True)
    assert signal.getsignal(signal.SIGTERM) is before


def test_notes_follow_a_program_that_went_well(
    run: Run, capfd: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "other_places", lambda meetings, count: "two lines met")
    monkeypatch.setattr(runs, "in_two_orders", lambda races, count: "")
    monkeypatch.setattr(runs, "unequal_inputs", lambda inputs, count: "a key differed")
    assert run(Faked(ending=DONE), Faked(ending=DONE)) == 0
    assert capfd.readouterr().err == "mcnb run: Two lines met\nmcnb run: A key differed\n"
    assert run(Faked(ending=DONE), Faked(status=-9)) == 137
    assert "Two lines met" not in capfd.readouterr().err


def test_an_error_of_several_is_shown_once(run: Run, capfd: Captured) -> None:
    ends = [Faked(ending=raised(text), status=1) for text in ("a on cpu:0", "b", "a on cpu:4")]
    assert run(*ends) == 1
    assert capfd.readouterr().err.splitlines() == [
        "[0,2] Traceback:",
        "[0,2]   line 3",
        "[0,2] ValueError: a on cpu:0",
        "[1] Traceback:",
        "[1]   line 3",
        "[1] ValueError: b",
        "mcnb run: processes 0,2 raised ValueError: a on cpu:0 (train.py:3)",
    ]


def test_programs_that_never_joined(run: Run, capfd: Captured) -> None:
    alone = Ending(joined=False)
    said = (
        "mcnb run: train.py never called jax.distributed.initialize(), so its 2 processes ran "
        "independently\n"
    )
    assert run(Faked(ending=alone), Faked(ending=alone)) == 0
    assert capfd.readouterr().err == said
    assert run(Faked(ending=alone), Faked(ending=DONE)) == 0
    assert run(Faked(ending=alone)) == 0
    assert capfd.readouterr().err == ""


def test_folded_output_is_shown_at_the_end_with_the_errors(run: Run, capfd: Captured) -> None:
    ends = [Faked(f"same\nmine {k}", ending=raised("no"), status=1) for k in range(2)]
    assert run(*ends, line="--fold train.py") == 1
    assert capfd.readouterr() == (
        "[all 2] same\n[0]     mine 0\n[1]     mine 1\n"
        "[all 2] Traceback:\n          line 3\n        ValueError: no\n",
        "mcnb run: both processes raised ValueError: no (train.py:3)\n",
    )


def test_ctrl_c_interrupts_all_once(run: Run, capfd: Captured) -> None:
    before = signal.getsignal(signal.SIGINT)
    zero, one = (
        Faked(status=None, at_poll=lambda: signal.raise_signal(signal.SIGINT)),
        Faked(status=None),
    )
    assert run(zero, one) == 130
    assert capfd.readouterr().err == (
        "mcnb run: interrupting both processes. To kill them: Ctrl-C once more\n"
        "mcnb run: interrupted\n"
    )
    # As a terminal would interrupt their children, too.
    assert zero.signals == one.signals == ["group SIGINT", "group SIGKILL"]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("times", [1, 2])
def test_what_does_not_end_after_ctrl_c_is_killed(times: int, run: Run, capfd: Captured) -> None:
    def press() -> None:
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)

    process = Faked(status=None, obeys=False, at_poll=press)
    assert run(process) == 130
    assert capfd.readouterr().err == (
        "mcnb run: interrupting process 0. To kill it: Ctrl-C once more\n"
        "mcnb run: interrupted. Process 0 did not end and was killed\n"
    )
    assert process.signals[:2] == ["group SIGINT", "group SIGKILL"]
    assert process.times[1] == (3.5 if times == 1 else 0.0)


def test_another_signal_is_passed_on(run: Run, capfd: Captured) -> None:
    process = Faked(status=None, at_poll=lambda: signal.raise_signal(signal.SIGTERM))
    assert run(process) == 143
    assert capfd.readouterr().err == (
        "mcnb run: ending process 0, because of SIGTERM\nmcnb run: ended by SIGTERM\n"
    )
    assert process.signals[0] == "SIGTERM"
