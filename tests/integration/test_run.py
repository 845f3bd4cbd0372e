"""`mcnb run`: programs in several processes, which are checked and end together."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from mcnb._system import reserved_port
from mcnb.cli.main import main
from mcnb.cli.run import INTERRUPTED_S, SLOWEST, TICK_S, Patience
from mcnb.lockstep.caught import CAUGHT
from mcnb.pods.topology import has_compiler
from tests.conftest import BUSY, once, wait_until

pytestmark = pytest.mark.thorough("many programs, each in new processes")

BEGIN = """\
import os, signal, sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
jax.distributed.initialize()
k = jax.process_index()
mesh = jax.make_mesh((jax.device_count(),), ("a",))
x = jax.device_put(np.arange(12.0), NamedSharding(mesh, P("a")))
"""
AT = BEGIN.count("\n") + 1  # the line after it
# mcnb has told the referee that the program is over before it calls what runs at the exit.
LEAVE = """\
import atexit, os, time
def leave():
    atexit.register(lambda: open(f"left {k}", "w").close())
def others_have_left():
    while not all(os.path.exists(f"left {other}") for other in range(1, jax.process_count())):
        time.sleep(0.01)
"""
TOTAL = "print(float(jnp.sum(x)))\n"
WAIT = "print('ready'); time.sleep(300)\n"
# As a worker of a data loader.
CHILD = (
    "import subprocess; child = subprocess.Popen(['sleep', '1000'], stdout=subprocess.DEVNULL)\n"
)
# JAX's tutorial's first program: it reads who it is from its command line.
TOY = """\
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import sys
proc_id = int(sys.argv[1])
num_procs = int(sys.argv[2])
jax.distributed.initialize(f'localhost:{sys.argv[3]}', num_procs, proc_id)
count = jax.local_device_count()
mesh = jax.make_mesh((num_procs, count), ('i', 'j'))
own = [jax.device_put(jnp.array([[proc_id * count + i]]), d)
       for i, d in enumerate(jax.local_devices())]
whole = jax.make_array_from_single_device_arrays(
    (num_procs, count), NamedSharding(mesh, P('i', 'j')), own)
print(f'process={proc_id} got result: {jnp.sum(jnp.sin(whole)):.4f}')
"""


# Only ends what hangs, on however busy a machine.
HANG_S = 240


def start(folder: Path, program: str, *words: str, before: str = "") -> subprocess.Popen[str]:
    """Start `mcnb run` on a program of this text, after some code of the test's own."""
    (folder / "train.py").write_text(program)
    code = f"{before}\nfrom mcnb.cli.main import main; raise SystemExit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", code, "run", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, program: str, *words: str) -> tuple[int, list[str], list[str]]:
    """Run a program; return the exit code, and what was said, line by line, sorted by process."""
    process = start(folder, program, *(words or ("train.py", "-n", "3", "-d", "1")))
    try:
        out, err = process.communicate(timeout=HANG_S)
    finally:
        process.kill()
        process.communicate()
    by_process = re.compile(r"^\[(\d+)\]")

    def ordered(text: str) -> list[str]:
        lines = text.splitlines()
        return sorted(lines, key=lambda line: ((m := by_process.match(line)) and int(m[1])) or 0)

    return process.returncode, ordered(out), err.splitlines()


def told(err: list[str]) -> str:
    """Return what `mcnb run` itself says last."""
    begin = max(i for i, line in enumerate(err) if line.startswith("mcnb run: "))
    return "\n".join(err[begin:]).removeprefix("mcnb run: ")


MOVE_IT = (
    "A collective must run on every participating process: move it out of the condition, and keep "
    "only local work such as printing inside"
)
MISSING, MISMATCH = (
    f"Processes diverged: {text}\n\n"
    for text in ("a participant is missing", "their launches do not match")
)
AT_THE_END = "(mcnb run tells more at the end)"


def at_line(program: str, line: int, width: int = 5) -> str:
    """Return a line of a program as a verdict shows it."""
    return f"{'':{width}} ----> {line} {program.splitlines()[line - 1].strip()}\n"


def verdict_at(program: str, line: int, condition: str = "`k == 1`") -> str:
    """Return the verdict for a sum that only process 1 of three makes."""
    return (
        f"{MISSING}[1]   is waiting in sum, train.py:{line}\n{at_line(program, line)}"
        "[0,2] exited without reaching it\n\n"
        f"Hint: this line runs only if {condition}. {MOVE_IT}"
    )


@pytest.mark.promise("mcnb run")
def test_a_program_runs_in_every_process(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, BEGIN + "print(k, jax.device_count(), __name__, *sys.argv[1:])")
    assert (code, err) == (0, [])
    assert out == [f"[{k}] {k} 3 __main__" for k in range(3)]


@pytest.mark.promise("every line is shown")
def test_last_lines_without_a_line_end_are_shown(tmp_path: Path) -> None:
    program = BEGIN + "sys.stderr.write(f'error of {k}')\nprint('result of', k, end='')\n"
    code, out, err = run(tmp_path, program)
    assert (code, out) == (0, [f"[{k}] result of {k}" for k in range(3)])
    assert sorted(err) == [f"[{k}] error of {k}" for k in range(3)]


def test_the_toy_program_unchanged(tmp_path: Path) -> None:
    with reserved_port() as port:
        words = ["train.py", "-n", "4", "-d", "2", "{process}", "{processes}", str(port)]
        code, out, err = run(tmp_path, TOY, *words)
    assert (code, err) == (0, [])
    assert out == [f"[{k}] process={k} got result: 0.5537" for k in range(4)]


def test_a_coordinator_at_home_listens_at_home(tmp_path: Path) -> None:
    look = (
        "import os, psutil\n"
        "own = psutil.Process().net_connections('tcp')\n"
        "ports = [c.laddr for c in own if c.status == 'LISTEN']\n"
        "print(sorted({a.ip[-9:] for a in ports if a.port == int(sys.argv[3])}))\n"
    )
    with reserved_port() as port:
        words = ["train.py", "-n", "2", "-d", "1", "{process}", "{processes}", str(port)]
        code, out, _ = run(tmp_path, TOY + look, *words)
    assert code == 0
    assert out[1] == "[0] ['127.0.0.1']"


def test_what_is_equal_is_folded_when_asked(tmp_path: Path) -> None:
    program = BEGIN + TOTAL + "print('mine', k)\n"
    code, out, err = run(tmp_path, program, "train.py", "--fold", "-n", "3", "-d", "1")
    assert (code, err) == (0, [])
    assert out == ["[all 3] 66.0", "[0]     mine 0", "[1]     mine 1", "[2]     mine 2"]


@pytest.mark.promise("a verdict for a script")
def test_processes_that_part_get_a_verdict(tmp_path: Path) -> None:
    # The verdict may come while process 2 still runs, unless both others have left before.
    begin = f"{BEGIN}if k == 0:\n    others_have_left()\nelse:\n    leave()\n"
    program = f"{LEAVE}{begin}if k == 0:\n    {TOTAL}"
    line = program.count("\n")
    code, out, err = run(tmp_path, program)
    assert (code, out) == (1, [])
    assert told(err) == (
        f"{MISSING}[0]   is waiting in sum, train.py:{line}\n{at_line(program, line)}"
        f"[1,2] exited without reaching it\n\nHint: this line runs only if `k == 0`. {MOVE_IT}"
    )
    assert err[0] == "[0] Traceback (most recent call last):"
    assert err[1] == f'[0]   File "train.py", line {line}, in <module>'
    assert err.count(f"[0] LockstepError: missing {AT_THE_END}") == 1


@pytest.mark.promise("the root cause comes last")
def test_one_that_raises_ends_all_and_comes_first(tmp_path: Path) -> None:
    program = f"{BEGIN}if k == 1:\n    raise ValueError('mine')\nwhile True: float(jnp.sum(x))\n"
    code, _, err = run(tmp_path, program)
    assert code == 1
    assert err[-1] == (
        f"mcnb run: process 1 raised ValueError: mine (train.py:{AT + 1}). "
        f"Processes 0,2 waited at train.py:{AT + 2} in sum"
    )
    assert [line for line in err if line.startswith("[1]")] == [
        "[1] Traceback (most recent call last):",
        f'[1]   File "train.py", line {AT + 1}, in <module>',
        "[1]     raise ValueError('mine')",
        "[1] ValueError: mine",
    ]


@once
def test_one_that_is_killed(tmp_path: Path) -> None:
    program = f"{BEGIN}if k == 2:\n    os.kill(os.getpid(), signal.SIGKILL)\n{TOTAL}"
    code, out, err = run(tmp_path, program)
    assert (code, out) == (128 + signal.SIGKILL, [])
    assert err[-1] == (
        "mcnb run: process 2 was killed by SIGKILL (sent by a program, or by the system "
        f"because memory ran out), after it had launched device_put at train.py:{AT - 1}. "
        f"Processes 0,1 waited at train.py:{AT + 2} in sum"
    )


@once
def test_those_that_do_not_listen_are_ended_too(tmp_path: Path) -> None:
    program = f"{BEGIN}if k == 1:\n    sys.exit(7)\ntime.sleep(300)\n"
    code, _, err = run(tmp_path, program)
    assert code == 7
    assert err[-1] == (
        f"mcnb run: process 1 ended with exit code 7 (train.py:{AT + 1}). Then mcnb ended "
        "processes 0,2"
    )


@pytest.mark.promise("only the program's lines")
def test_gloo_says_nothing_while_the_program_prints(tmp_path: Path) -> None:
    """Gloo writes its notes in pieces, from a thread of its own."""
    program = (
        "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.printf(b'[Gloo] Rank ')\nprint('mine')\n"
        "for piece in b'0', b' is connected to ', b'1', b' peer ranks. ':\n    libc.printf(piece)\n"
        "print('more')\nlibc.printf(b'Expected number of connected peer ranks is : ')\n"
        "libc.printf(b'1\\n')\nlibc.printf(b'native\\n')\njax.distributed.initialize()\n"
    )
    code, out, _ = run(tmp_path, f"import jax\n{program}", "train.py", "-n", "1")
    assert (code, out) == (0, ["[0] mine", "[0] more", "[0] native"])


@pytest.mark.promise("Ctrl-C under mcnb run")
def test_ctrl_c_reaches_all_of_them_once(tmp_path: Path) -> None:
    process = start(tmp_path, BEGIN + WAIT, "train.py", "-n", "2")
    try:
        assert process.stdout
        said = [process.stdout.readline() for _ in range(2)]
        assert sorted(said) == ["[0] ready\n", "[1] ready\n"]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=HANG_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 128 + signal.SIGINT
    assert sorted(err.splitlines()) == [
        f"[all 2] KeyboardInterrupt at train.py:{AT}",
        "mcnb run: interrupted",
        "mcnb run: interrupting both processes. To kill them: Ctrl-C once more",
    ]


STUBBORN = (
    "import os, subprocess\n"
    "child = subprocess.Popen(['sleep', '300'], stdout=subprocess.DEVNULL)\n"
    "print('ready')\n"
    "while True:\n    try:\n        time.sleep(300)\n    except BaseException: pass\n"
)


@once
@pytest.mark.parametrize("again", [False, True])
def test_ctrl_c_ends_what_does_not_listen(tmp_path: Path, again: bool) -> None:
    assert INTERRUPTED_S <= 3  # "within four seconds"
    # With a second Ctrl-C, that time is not waited for: it would be longer than the test.
    before = f"from mcnb.cli import run; run.INTERRUPTED_S = {1e6 if again else INTERRUPTED_S}"
    process = start(tmp_path, BEGIN + STUBBORN, "train.py", "-n", "2", before=before)
    try:
        assert process.stdout
        assert process.stderr
        said = [process.stdout.readline() for _ in range(2)]
        assert sorted(said) == ["[0] ready\n", "[1] ready\n"]
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) == 5  # with the guard, which would end them if mcnb run were killed
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == (
            "mcnb run: interrupting both processes. To kill them: Ctrl-C once more\n"
        )
        if again:
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=HANG_S)
    finally:
        process.kill()
        process.communicate()
    assert err == "mcnb run: interrupted. Both processes did not end and were killed\n"
    assert process.returncode == 128 + signal.SIGINT
    assert wait_until(lambda: not any(member.is_running() for member in family), 10)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the states of threads")
def test_time_in_which_a_process_waits_for_a_core_does_not_count() -> None:
    core = min(os.sched_getaffinity(0))
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(3)]
    asleep = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    try:
        for one in busy:
            os.sched_setaffinity(one.pid, {core})
        os.setpriority(os.PRIO_PROCESS, busy[0].pid, 19)
        wait_until(lambda: psutil.Process(asleep.pid).status() == psutil.STATUS_SLEEPING)
        of_sleeping, of_waiting = Patience(), Patience()
        while of_sleeping.passed_s < 20 * TICK_S:
            time.sleep(TICK_S)
            of_sleeping.tick([asleep.pid])
            of_waiting.tick([asleep.pid, busy[0].pid])
        assert of_sleeping.passed_s / SLOWEST <= of_waiting.passed_s < of_sleeping.passed_s / 2
    finally:
        for one in (*busy, asleep):
            one.kill()
            one.wait()


@once
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
@pytest.mark.parametrize("joined", [False, True])
def test_nothing_is_left_where_it_is_killed_itself(tmp_path: Path, joined: bool) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    program = (BEGIN if joined else "import time\n") + CHILD + WAIT
    before = f"import tempfile; tempfile.tempdir = {str(temporary)!r}"
    process = start(tmp_path, program, "train.py", "-n", "2", before=before)
    assert process.stdout
    assert process.stderr
    for _ in range(2):
        assert process.stdout.readline().endswith("ready\n")
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) == 5
    process.kill()
    process.wait()
    assert wait_until(lambda: not any(member.is_running() for member in family), 10)
    assert list(temporary.iterdir()) == []
    process.stdout.close()
    process.stderr.close()


@once
@pytest.mark.parametrize(
    ("name", "note"),
    [
        # JAX handles it, and the program may save its state.
        ("SIGTERM", ". Both processes did not end and were killed"),
        ("SIGHUP", ""),
    ],
)
def test_a_signal_ends_all_with_their_children(tmp_path: Path, name: str, note: str) -> None:
    process = start(tmp_path, BEGIN + STUBBORN, "train.py", "-n", "2")
    try:
        assert process.stdout
        assert process.stderr
        said = [process.stdout.readline() for _ in range(2)]
        assert sorted(said) == ["[0] ready\n", "[1] ready\n"]
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.Signals[name])
        assert process.stderr.readline() == (
            f"mcnb run: ending both processes, because of {name}\n"
        )
        _, err = process.communicate(timeout=HANG_S)
    finally:
        process.kill()
        process.communicate()
    own = [line for line in err.splitlines() if "preemption_notifier.cc" not in line]
    assert own == [f"mcnb run: ended by {name}{note}"]
    assert process.returncode == 128 + signal.Signals[name]
    assert wait_until(lambda: not any(member.is_running() for member in family), 10)


@once
def test_the_children_of_all_end_where_one_fails(tmp_path: Path) -> None:
    # Process 0 is through when process 1 fails; both have started a child.
    program = f"{BEGIN}{CHILD}print(child.pid)\nif k: others_have_left(); raise SystemExit(3)\n"
    program = LEAVE.replace("range(1, jax.process_count())", "[0]") + program + "leave()\n"
    code, out, err = run(tmp_path, program, "train.py", "-n", "2", "-d", "1")
    line = program.count("\n") - 1
    assert (code, err) == (3, [f"mcnb run: process 1 ended with exit code 3 (train.py:{line})"])
    children = [int(line.split()[1]) for line in out]
    assert len(children) == 2
    assert wait_until(lambda: not any(psutil.pid_exists(child) for child in children), 10)


@pytest.mark.parametrize(("read", "said"), [(True, "started\n"), (False, "")])
def test_a_process_ends_if_mcnb_run_has_ended_before_it(
    tmp_path: Path, read: bool, said: str
) -> None:
    (tmp_path / "train.py").write_text("print('started')\n")
    read_end, report = os.pipe()
    if not read:
        os.close(read_end)
    given = {"MCNB_PROCESS": "0", "MCNB_PROCESSES": "1", "MCNB_REPORT": str(report)}
    done = subprocess.run(
        [sys.executable, "-m", "mcnb.lockstep", "train.py"],
        env={**os.environ, **given},
        cwd=tmp_path,
        pass_fds=[report],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == (said, "", 0 if read else 2)
    os.close(report)
    if read:
        os.close(read_end)


@once
def test_a_child_that_outlives_its_program_is_not_waited_for(tmp_path: Path) -> None:
    program = (
        "import os, time\nchild = os.fork()\n"
        "if child == 0:\n    time.sleep(1000)\n    os._exit(0)\nprint(child)\n"
    )
    code, out, _ = run(tmp_path, program, "train.py", "-n", "1")
    child = int(out[0].removeprefix("[0] "))
    os.kill(child, signal.SIGKILL)  # it is still there
    assert code == 0


@once
def test_programs_that_never_joined(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, "print('alone')\n")
    assert (code, out) == (0, ["[0] alone", "[1] alone", "[2] alone"])
    assert err == [
        "mcnb run: train.py never called jax.distributed.initialize(), so its 3 processes ran "
        "independently"
    ]
    # What fails for want of the other processes' devices is told so, too.
    code, _, err = run(tmp_path, "import jax\njax.make_mesh((jax.device_count() + 1,), ('x',))\n")
    assert code == 1
    assert err[-2].startswith("mcnb run: all 3 processes raised ValueError: Number of devices ")
    assert err[-1] == (
        "mcnb run: train.py never called jax.distributed.initialize(), so its 3 processes ran "
        "independently"
    )
    # One that did not come to its call is not.
    code, _, err = run(tmp_path, "import jax\n1 / 0\njax.distributed.initialize()\n")
    assert err[-1].startswith("mcnb run: all 3 processes raised ZeroDivisionError: ")


@once
def test_a_program_that_contradicts_who_it_is(tmp_path: Path) -> None:
    program = "import jax\njax.distributed.initialize('localhost:1', 3, 0)\n"
    code, _, err = run(tmp_path, program)
    assert code == 1
    assert err[-1].startswith("mcnb run: ")
    # The first that fails ends the other, which may not have come that far.
    assert re.search(
        r"ClusterError: Process ([12]) of 3 called jax.distributed.initialize with process_id=0; "
        r"expected \1. Call it without arguments: mcnb run supplies them. If the program reads "
        r"them from its command line, pass \{process\} and \{processes\} there$",
        "\n".join(err),
        re.MULTILINE,
    )


def test_a_module_beside_the_program_is_found(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def told(k):\n    return f'helped {k}'\n")
    program = "import helper\n" + BEGIN + "print(helper.told(k))\n"
    code, out, _ = run(tmp_path, program)
    assert (code, out) == (0, [f"[{k}] helped {k}" for k in range(3)])


def test_what_is_the_programs(tmp_path: Path) -> None:
    program = "import sys\nprint(sys.argv[1:])\n"
    for given, handed_on in (
        (["--steps", "3", "-n", "9"], ["--steps", "3", "-n", "9"]),
        (["--", "-n", "9"], ["-n", "9"]),
    ):
        code, out, _ = run(tmp_path, program, "-d", "1", "train.py", "-n", "1", *given)
        assert (code, out) == (0, [f"[0] {handed_on}"])


def test_a_module_is_run_as_python_does(tmp_path: Path) -> None:
    package = tmp_path / "trainer"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "steps.py").write_text("COUNT = 3\n")
    (package / "main.py").write_text(
        f"{BEGIN}from . import steps\nprint(__name__, steps.COUNT, sys.argv[1:], {TOTAL[6:-2]})\n"
        "assert sys.argv[0].endswith('main.py')\nif k == 1: jnp.sum(x)\n"
    )
    words = ("-n", "2", "-d", "1", "-m", "trainer.main", "-n", "9", "{process}")
    code, out, err = run(tmp_path, "", *words)
    assert (code, out) == (1, [f"[{k}] __main__ 3 ['-n', '9', '{k}'] 66.0" for k in range(2)])
    assert told(err) == (
        f"{MISSING}[1] is waiting in sum, main.py:{AT + 3}\n"
        f"    ----> {AT + 3} if k == 1: jnp.sum(x)\n[0] exited without reaching it\n\n"
        f"Hint: this line runs only if `k == 1`. {MOVE_IT}"
    )
    code, _, err = run(tmp_path, "", "-n", "2", "-m", "nowhere")
    assert (code, err) == (
        1,
        [
            "[all 2] ImportError: No module named nowhere",
            "mcnb run: both processes raised ImportError: No module named nowhere",
        ],
    )


def test_unchecked(tmp_path: Path) -> None:
    program = BEGIN + TOTAL
    code, out, _ = run(tmp_path, program, "train.py", "-n", "2", "-d", "1", "--unchecked")
    assert (code, out) == (0, ["[0] 66.0", "[1] 66.0"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "mcnb run: the program's file is missing. For example: mcnb run train.py -n 4 -d 2"),
        (["none.py"], "mcnb run none.py: there is no such file"),
        (
            ["--folds", "none.py"],
            "mcnb run --folds: unknown option. Options: -n, -d, --platform, --env, "
            "--fold, --unchecked, --values, --no-values. The program's own options follow its "
            "file. Did you mean --fold?",
        ),
        (
            [__file__, "-n", "0"],
            "-n 0: the number of processes is a whole number from 1 to 512. For example: -n 4",
        ),
        (
            ["-n", "2", "-m"],
            "mcnb run -m: the module's name is missing. For example: mcnb run -n 4 -m trainer.main",
        ),
        ([__file__, "-n"], "mcnb run -n: a value is missing. See mcnb run --help"),
    ],
)
def test_nonsense_gets_a_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words]) == 2
    assert capsys.readouterr() == ("", f"{sentence}\n")


LESSON = """\
---
kernelspec:
  display_name: Python 3
  name: python3
---

# A lesson

Some words.

```{code-cell} ipython3
%load_ext mcnb
%mcjax start -n 2 -d 1
```

## It fails

```{code-cell} ipython3
:tags: [raises-exception]

%%mcjax
import jax
if jax.process_index():
    1 / 0
```

```{code-cell} ipython3
FINAL
```
"""


@pytest.mark.parametrize(
    ("final", "code", "last"),
    [
        ("%%mcjax\njax.device_count()", 0, "[all 2] 2"),
        ("%%mcjax\nnobody", 1, "Hint: first run the %%mcjax cell that defines nobody"),
        (":tags: [raises-exception]\n\n7", 1, "Out[3]: 7"),
    ],
)
@once
@pytest.mark.promise("mcnb run executes lessons")
def test_a_lesson_in_the_terminal(tmp_path: Path, final: str, code: int, last: str) -> None:
    (tmp_path / "lesson.md").write_text(LESSON.replace("FINAL", final))
    ended, out, err = run(tmp_path, "", "lesson.md")
    assert ended == code, (out, err)
    assert "# A lesson" in out
    assert "In [1]: %load_ext mcnb" in out
    assert "        %mcjax start -n 2 -d 1" in out
    assert "Ready: 2 processes x 1 CPU device" in out
    assert "ZeroDivisionError: division by zero" in out
    assert last in out
    assert err == (["This cell is meant to fail, and did not"] if last.startswith("Out") else [])


@once
@pytest.mark.skipif(has_compiler(), reason="the compiler for TPUs is installed")
def test_a_lesson_leaves_out_what_needs_a_compiler_that_is_missing(tmp_path: Path) -> None:
    final = ":tags: [needs-tpu, nbval-skip]\n\nprint('a pod')"
    (tmp_path / "lesson.md").write_text(LESSON.replace("FINAL", final))
    ended, out, err = run(tmp_path, "", "lesson.md")
    assert (ended, err) == (0, [])
    told = (
        "A cell is left out. mcnb.Pod needs the TPU compiler (libtpu), which is not installed. "
        'Install it: python -m pip install "mcnb[tpu]"'
    )
    assert out.count(told) == 1
    assert not any("a pod" in line for line in out)


def test_a_lesson_is_found_by_its_name_and_takes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "55_none.md"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "mcnb run 55_none.md: there is no such file. The course has: 01_hello_controllers.md, "
    )
    broken = tmp_path / "broken.ipynb"
    broken.write_text("{")
    assert main(["run", str(broken)]) == 1
    assert capsys.readouterr().err.startswith(f"{broken} can't be read as a notebook: ")
    assert main(["run", "05_lockstep.md", "-n", "2"]) == 2
    assert capsys.readouterr().err == (
        "mcnb run 05_lockstep.md: a lesson starts its own processes, so no other arguments are "
        "allowed: mcnb run 05_lockstep.md\n"
    )


def test_an_exception_that_leads_to_another_launch_is_never_hidden(tmp_path: Path) -> None:
    program = (
        BEGIN + "def save():\n    if k == 1: raise OSError(28, 'No space left on device')\n"
        "try:\n    save()\n    jnp.max(x)\nfinally:\n    jnp.sum(x)\n"
    )
    code, _, err = run(tmp_path, program)
    assert (code, told(err)) == (
        1,
        f"{MISMATCH}[0,2] are waiting in max f32[12], train.py:{AT + 4}\n"
        f"{at_line(program, AT + 4)}[1]   is waiting in sum f32[12], train.py:{AT + 6}, while "
        f"handling OSError: [Errno 28] No space left on device (train.py:{AT + 1})\n"
        f"{at_line(program, AT + 6)}\nHint: an exception led to another launch than on the other "
        "processes. Fix its cause, and run no collective in an `except` or a `finally` clause: the "
        "other processes are elsewhere then",
    )
    own = itertools.takewhile(lambda line: not line.startswith("mcnb run: "), err)
    *before, last = [line for line in own if line.startswith("[1]") and "^" not in line]
    assert before == [
        "[1] Traceback (most recent call last):",
        f'[1]   File "train.py", line {AT + 3}, in <module>',
        "[1]     save()",
        f'[1]   File "train.py", line {AT + 1}, in save',
        "[1]     if k == 1: raise OSError(28, 'No space left on device')",
        "[1] OSError: [Errno 28] No space left on device",
        "[1]",
        "[1] During handling of the above exception, another exception occurred:",
        "[1]",
        "[1] Traceback (most recent call last):",
        f'[1]   File "train.py", line {AT + 6}, in <module>',
        "[1]     jnp.sum(x)",
    ]
    assert last == f"[1] LockstepError: mismatch {AT_THE_END}"


@pytest.mark.parametrize(
    ("raises", "shown"),
    [
        ("raise RuntimeError('mine') from error", True),
        ("raise RuntimeError('mine') from None", False),
        ("raise ExceptionGroup('mine', [error])", True),
    ],
)
def test_an_error_made_of_a_verdict_does_not_hide_who_is_missing(
    tmp_path: Path, raises: str, shown: bool
) -> None:
    program = f"{BEGIN}try:\n    if k == 1: jnp.sum(x)\nexcept Exception as error:\n    {raises}\n"
    code, _, err = run(tmp_path, program)
    kind = raises.partition("raise ")[2].partition("(")[0]
    said = "mine (1 sub-exception)" if kind == "ExceptionGroup" else "mine"
    assert (code, told(err)) == (
        1,
        f"{verdict_at(program, AT + 1)}\n\nProcess 1 raised {kind}: {said} (train.py:{AT + 3})",
    )
    assert any(f"LockstepError: missing {AT_THE_END}" in line for line in err) is shown
    assert not any("/mcnb/" in line for line in err)


def test_a_program_that_catches_its_verdict_may_go_on(tmp_path: Path) -> None:
    program = (
        f"{BEGIN}f, g = jax.jit(jnp.sum), jax.jit(jnp.max)\n"
        "for step in range(4):\n    try: (g if (k, step) == (1, 2) else f)(x)\n"
        f"    except Exception: print('caught in step', step)\n{TOTAL}"
    )
    code, out, err = run(tmp_path, program)
    assert out == [f"[{k}] {line}" for k in range(3) for line in ("caught in step 2", "66.0")]
    assert (code, err[0][:10]) == (1, "mcnb run: ")
    assert told(err).startswith(
        f"the program caught a LockstepError and went on: {MISMATCH}"
        f"[0,2] are waiting in jit(sum) f32[12], train.py:{AT + 2}, for the 3rd time\n"
        f"[1]   is waiting in jit(max) f32[12], train.py:{AT + 2}, for the 3rd time\n"
        f"{at_line(program, AT + 2)}"
        "\nHint: "
    )


def test_a_permutation_among_some_needs_all(tmp_path: Path) -> None:
    # In processes that have made no communicator yet, it hangs until Gloo's time limit.
    program = (
        f"{BEGIN}f = jax.jit(jax.shard_map(lambda v: jax.lax.ppermute(v, 'a', [(0, 1)]),\n"
        "    mesh=mesh, in_specs=P('a'), out_specs=P('a')))\nif k < 2: f(x).block_until_ready()\n"
    )
    code, _, err = run(tmp_path, program)
    assert code == 1
    assert told(err) == (
        f"{MISSING}[0,1] are waiting in jit(<lambda>), train.py:{AT + 2}\n"
        f"{at_line(program, AT + 2)}[2]   exited without reaching it\n\n"
        f"Hint: this line runs only if `k < 2`. {MOVE_IT}"
    )


def test_a_program_that_closes_its_output(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, BEGIN + TOTAL + "if k == 1: sys.stdout.close()\n")
    assert (code, out, err) == (0, [f"[{k}] 66.0" for k in range(3)], [])


@pytest.mark.promise("a program's environment")
@pytest.mark.parametrize(
    ("own", "options", "seen"),
    [(None, (), None), ("svg", (), "svg"), ("svg", ("--env", "MPLBACKEND=pdf"), "pdf")],
)
def test_the_environment_of_the_program_is_clean(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own: str | None,
    options: tuple[str, ...],
    seen: str | None,
) -> None:
    if own is None:
        monkeypatch.delenv("MPLBACKEND", raising=False)
    else:
        monkeypatch.setenv("MPLBACKEND", own)
    given = "{'MCNB_REFEREE', 'MCNB_COORDINATOR', 'MCNB_REPORT', 'MCNB_PROCESS', 'MCNB_PROCESSES'}"
    program = f"import os\nprint(sorted({given} & {{*os.environ}}), os.environ.get('MPLBACKEND'))"
    _, out, _ = run(tmp_path, program, "train.py", "-n", "1", *options)
    assert out == [f"[0] [] {seen}"]
    assert "MCNB_PROCESS" not in os.environ


# What the main thread waits for, and what the thread does that receives the verdict.
WAITS_FOR_A_THREAD = {
    "an event": (
        "done = threading.Event()\n",
        "    done.set()\n",
        "done.wait()\n",
    ),
    "a queue": (
        "batches = queue.Queue()\n",
        "    batches.put(1)\n",
        "batches.get()\n",
    ),
    "a condition": (
        "changed = threading.Condition()\nchanged.acquire()\n",
        "    with changed: changed.notify()\n",
        "changed.wait()\n",
    ),
}


@pytest.mark.parametrize(
    ("before", "ends", "waits"), WAITS_FOR_A_THREAD.values(), ids=WAITS_FOR_A_THREAD
)
def test_a_main_thread_that_waits_for_a_thread_with_a_verdict(
    tmp_path: Path, before: str, ends: str, waits: str
) -> None:
    program = (
        f"{BEGIN}import queue, threading\n{before}"
        f"def work():\n    if k == 1: jnp.sum(x)\n{ends}"
        f"threading.Thread(target=work, name='worker', daemon=True).start()\n{waits}"
    )
    line = program[: program.index("jnp.sum")].count("\n") + 1
    code, out, err = run(tmp_path, program)
    assert (code, out) == (1, [])
    assert err[:3] == [
        "[1] Exception in thread worker:",
        "[1] Traceback (most recent call last):",
        f'[1]   File "train.py", line {line}, in work',
    ]
    last = program.count("\n")
    assert f'[1]   File "train.py", line {last}, in <module>' in err
    assert err.count(f"[1] LockstepError: missing {AT_THE_END}") == 2
    assert told(err) == verdict_at(program, line)


def test_a_main_thread_that_goes_on_after_a_verdict_is_not_interrupted(tmp_path: Path) -> None:
    """A verdict that the main thread itself has received interrupts none of its later waits."""
    program = (
        f"{BEGIN}import mcnb, threading\n"
        "if k == 1:\n"
        "    try: jnp.sum(x)\n"
        "    except mcnb.LockstepError: print('caught')\n"
        "    done = threading.Event()\n"
        "    threading.Thread(target=lambda: (time.sleep(0.5), done.set())).start()\n"
        "    done.wait()\n"
        "    print('went on')\n"
    )
    code, out, err = run(tmp_path, program)
    assert out == ["[1] caught", "[1] went on"]
    assert not any("KeyboardInterrupt" in line for line in err)
    assert code == 1
    assert err[0].startswith("mcnb run: ")
    assert told(err) == f"{CAUGHT}{verdict_at(program, AT + 2)}"


@pytest.mark.parametrize(
    "catch",
    [
        "try: jnp.sum(x)\n    except Exception: pass\n",
        "with contextlib.suppress(mcnb.LockstepError):\n        jnp.sum(x)\n",
        "pool.submit(lambda: jnp.sum(x)).exception()\n",
    ],
    ids=["try", "suppress", "a pool"],
)
def test_a_verdict_that_the_program_catches(tmp_path: Path, catch: str) -> None:
    before = "import contextlib, mcnb, concurrent.futures\n"
    before += "pool = concurrent.futures.ThreadPoolExecutor(1)\n"
    program = f"{BEGIN}{before}if k == 1:\n    {catch}print('ended')\n"
    code, out, err = run(tmp_path, program)
    assert (code, out) == (1, ["[0] ended", "[1] ended", "[2] ended"])
    line = program[: program.index("jnp.sum")].count("\n") + 1
    # With another statement between, the condition's line is named.
    condition = f"`k == 1` (train.py:{line - 2})" if "with" in catch else "`k == 1`"
    assert err[0].startswith("mcnb run: ")
    assert told(err) == f"{CAUGHT}{verdict_at(program, line, condition)}"


@pytest.mark.promise("the condition that hides a launch")
def test_a_condition_in_a_helper_of_another_file(tmp_path: Path) -> None:
    # As in AI-Hypercomputer/maxdiffusion#435: the profiled pass hung, the one before it did not.
    (tmp_path / "max_utils.py").write_text(
        "import jax\n"
        "def _traces(config):\n    return config.profile and jax.process_index() == 0\n"
        "def profiler_enabled(config):\n    return bool(_traces(config))\n"
    )
    program = BEGIN + (
        "import max_utils\n"
        "class Config:\n    profile, steps = True, 2\n"
        "step = jax.jit(lambda v: v + jnp.sum(v))\n"
        "def generate(v, config):\n"
        "    for _ in range(config.steps):\n"
        "        v = step(v)\n"
        "generate(x, Config())\n"
        "if max_utils.profiler_enabled(Config()):\n"
        "    generate(x, Config())\n"
    )
    code, _, err = run(tmp_path, program)
    assert (code, told(err)) == (
        1,
        f"{MISSING}[0]   is waiting in jit(<lambda>), train.py:{AT + 6}, for the 3rd time\n"
        f"{at_line(program, AT + 6)}[1,2] exited without reaching it a 3rd time\n\n"
        f"Hint: train.py:{AT + 9}, which leads to this line, runs only if "
        "`max_utils.profiler_enabled(Config())`, which depends on the process (max_utils.py:3). "
        f"{MOVE_IT.replace('move it', 'move the call')}",
    )


def test_a_launch_that_one_process_makes_once_more(tmp_path: Path) -> None:
    # As in netket/netket#2275: the launch pairs off with the others' next one, and the process
    # hangs later, where it made no mistake.
    program = BEGIN + (
        "mean, norm = jax.jit(jnp.mean), jax.jit(lambda v: jnp.sum(v * v))\n"
        "def error(v):\n"
        "    return float(mean(v))\n"
        "for _ in range(2):\n"
        "    error(x)\n"
        "if k == 0:\n"
        "    print(max(error(v) for v in [x]))\n"
        "for _ in range(3):\n"
        "    error(x)\n"
        "print(float(norm(x)))\n"
    )
    code, _, err = run(tmp_path, program)
    assert (code, told(err)) == (
        1,
        f"{MISMATCH}[0]   is waiting in jit(mean) f32[12], train.py:{AT + 2}, for the 6th time\n"
        f"{at_line(program, AT + 2)}[1,2] are waiting in jit(<lambda>) f32[12], train.py:{AT + 9}\n"
        f"{at_line(program, AT + 9)}\nWhat came before: the 3rd launch of jit(mean) came "
        f"from different lines: train.py:{AT + 6} on process 0; train.py:{AT + 8} on processes "
        "1,2. Since then, these processes may have been in "
        "different steps of the program, and results may be wrong\n"
        f"Hint: train.py:{AT + 6} runs only if `k == 0`. {MOVE_IT}",
    )


def test_a_launch_from_different_lines_is_told_at_the_end(tmp_path: Path) -> None:
    program = BEGIN + (
        "mean = jax.jit(jnp.mean)\n"
        "if k == 1:\n"
        "    print(f'{mean(x):.3f}')\n"
        "else:\n"
        "    print(f'{mean(x + 1):.3f}')\n"
    )
    code, out, err = run(tmp_path, program)
    # A sum of parts of both: 5.5 on process 1, and 6.5 on the others, is what was meant.
    assert (code, out) == (0, [f"[{k}] {(66 + 8) / 12:.3f}" for k in range(3)])
    assert err == [
        f"mcnb run: Processes 0,2 launched jit(mean) at train.py:{AT + 4}, and process 1 at "
        f"train.py:{AT + 2}. The lines launch the same computation, so no process hung. If they "
        "are different steps of the program, the results are wrong"
    ]


def test_an_error_of_several_processes_is_told_once(tmp_path: Path) -> None:
    program = (
        "import sys, jax\njax.distributed.initialize()\nk = jax.process_index()\n"
        "def load():\n    raise ValueError(f'bad {jax.local_devices()[0]!r}')\n"
        "if k == 3: sys.exit('no data')\nload()\n"
    )
    words = ("train.py", "-n", "4", "-d", "1")
    traceback = [
        "Traceback (most recent call last):",
        '  File "train.py", line 7, in <module>',
        "    load()",
        *(["    ~~~~^^"] if sys.version_info >= (3, 13) else []),
        '  File "train.py", line 5, in load',
        "    raise ValueError(f'bad {jax.local_devices()[0]!r}')",
        "ValueError: bad CpuDevice(id=0)",
    ]
    code, out, err = run(tmp_path, program, *words)
    assert (code, out) == (1, [])
    assert [line for line in err if line.startswith("[0-2]")] == [
        f"[0-2] {line}" for line in traceback
    ]
    assert "[3] no data" in err
    assert len(err) == len(traceback) + 2
    assert err[-1] in (  # who came first
        "mcnb run: processes 0-2 raised ValueError: bad CpuDevice(id=0) (train.py:5)",
        "mcnb run: process 3 exited: no data (train.py:6)",
    )
    code, out, folded = run(tmp_path, program, *words, "--fold")
    assert (code, len(folded)) == (1, 1)
    said = [f"{'' if number else '[0-2]':5} {line}" for number, line in enumerate(traceback)]
    assert sorted(out) == sorted(["[3]   no data", *said])


def test_a_divergence_after_one_that_was_caught_is_another(tmp_path: Path) -> None:
    program = (
        f"{BEGIN}f, g = jax.jit(jnp.sum), jax.jit(jnp.max)\n"
        "try: (g if k == 1 else f)(x)\nexcept Exception: pass\n"
        f"{TOTAL}if k == 1: jnp.sum(x)\n"
    )
    code, out, err = run(tmp_path, program)
    assert (code, out) == (1, [f"[{k}] 66.0" for k in range(3)])
    line = program.count("\n")
    first = (
        f"mismatch: processes 0,2 are waiting in jit(sum) f32[12], train.py:{AT + 1}; process 1 is "
        f"waiting in jit(max) f32[12], train.py:{AT + 1}. Hint: "
    )
    assert err.count(f"[1] LockstepError: missing {AT_THE_END}") == 1
    before, _, caught = told(err).partition(f"\n\nBefore that, {CAUGHT}")
    assert before == verdict_at(program, line)
    assert caught.startswith(first)
