"""`mcnb.lockstep.install`: the check in a program that is started in no special way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mcnb._system import reserved_port

# Only ends what hangs, on however busy a machine.
HANG_S = 240
MORE = pytest.mark.thorough("more of the same kind", once=True)
PROGRAM = """\
import sys
import mcnb.lockstep
mcnb.lockstep.install()
import jax
jax.config.update("jax_platforms", "cpu")
port, k = sys.argv[1:3]
jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(k))
from jax.experimental import multihost_utils
print(multihost_utils.process_allgather(jax.process_index()).tolist(), flush=True)
if k == "1" and "diverge" in sys.argv:
    multihost_utils.process_allgather(1)
"""


# Catches its verdict. It is started with `python -m mcnb.lockstep`, as MPICH's mpirun would do it.
CAUGHT = PROGRAM.replace("import mcnb.lockstep\nmcnb.lockstep.install()\n", "").replace(
    "    multihost_utils.process_allgather(1)\n",
    "    try: multihost_utils.process_allgather(1)\n    except Exception: print('caught')\n",
)


def outputs(
    folder: Path, *words: str, program: str = PROGRAM, options: tuple[str, ...] = ()
) -> list[tuple[int, str, str]]:
    """Return the exit codes and outputs of two processes that a shell could have started."""
    (folder / "program.py").write_text(program)
    with reserved_port() as port:
        running = [
            subprocess.Popen(
                [sys.executable, *options, "program.py", str(port), str(k), *words],
                cwd=folder,
                env={
                    **os.environ,
                    "MCNB_FOLDER": str(folder / "shared"),
                    **({"PMI_RANK": str(k), "PMI_SIZE": "2"} if options else {}),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for k in range(2)
        ]
        try:
            said = [process.communicate(timeout=HANG_S) for process in running]
        finally:
            for process in running:
                process.kill()
                process.wait()
    return [(process.returncode, *one) for process, one in zip(running, said, strict=True)]


def without_gloo(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("[Gloo]")]


def test_a_correct_program_runs_as_before(tmp_path: Path) -> None:
    for code, out, err in outputs(tmp_path):
        assert (code, without_gloo(out), err) == (0, ["[0, 1]"], "")


def test_a_divergence_names_the_process_and_the_line(tmp_path: Path) -> None:
    _, (code, out, err) = outputs(tmp_path, "diverge")
    assert (code, without_gloo(out)) == (1, ["[0, 1]"])
    # Neither mcnb's frames nor JAX's are shown.
    assert [line for line in err.splitlines() if "^" not in line] == [
        "Traceback (most recent call last):",
        f'  File "{tmp_path}/program.py", line 11, in <module>',
        "    multihost_utils.process_allgather(1)",
        "LockstepError: missing: process 1 is waiting in process_allgather, program.py:11; "
        "process 0 exited without reaching it",
    ]


def test_an_error_of_the_programs_own_is_printed_as_before(tmp_path: Path) -> None:
    program = PROGRAM + "    raise ValueError('own')\n"
    program = program.replace("    multihost_utils.process_allgather(1)\n", "")
    _, (code, _, err) = outputs(tmp_path, "diverge", program=program)
    assert code == 1
    assert [line for line in err.splitlines() if "^" not in line][-2:] == [
        "    raise ValueError('own')",
        "ValueError: own",
    ]


START = 'jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(k))'
INSTALL = "import mcnb.lockstep\nmcnb.lockstep.install()\n"


@pytest.mark.parametrize(
    ("before", "start"),
    [
        ("from jax.distributed import initialize\n", START.removeprefix("jax.distributed.")),
        pytest.param(
            "from jax._src import distributed\n",
            START.removeprefix("jax."),
            marks=MORE,
        ),
        pytest.param(
            "from jax._src.distributed import global_state\n",
            START.replace("jax.distributed", "global_state"),
            marks=MORE,
        ),
        (INSTALL, START),
    ],
    ids=["a name from before", "JAX's own module", "JAX's own state", "installed twice"],
)
def test_every_way_to_join_is_checked(tmp_path: Path, before: str, start: str) -> None:
    program = before.replace("\n", "; ") + PROGRAM.replace(START, start)
    _, (code, out, err) = outputs(tmp_path, "diverge", program=program)
    assert (code, without_gloo(out)) == (1, ["[0, 1]"]), err
    assert err.strip().splitlines()[-1] == (
        "LockstepError: missing: process 1 is waiting in process_allgather, "
        "program.py:11; process 0 exited without reaching it"
    )


def test_a_program_that_installs_the_check_can_be_run_with_it(tmp_path: Path) -> None:
    _, (code, out, err) = outputs(
        tmp_path, "diverge", program=PROGRAM, options=("-m", "mcnb.lockstep")
    )
    assert (code, without_gloo(out)) == (1, ["[0, 1]"]), err
    assert err.strip().splitlines()[-1] == (
        "LockstepError: missing: process 1 is waiting in process_allgather, program.py:11; "
        "process 0 exited without reaching it"
    )


@pytest.mark.parametrize("options", [(), ("-m", "mcnb.lockstep")], ids=["install", "python -m"])
@pytest.mark.parametrize(
    "config",
    ["jax.config.update('jax_num_cpu_devices', 4)", "os.environ['XLA_FLAGS'] = FLAG"],
)
def test_xla_has_enough_threads_for_launches_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], config: str
) -> None:
    monkeypatch.delenv("NPROC", raising=False)
    program = (INSTALL + PROGRAM).replace(
        "port, k",
        f"import os; FLAG = '--xla_force_host_platform_device_count=4'; {config}\nport, k",
    )
    # In one piece: print writes each of its arguments, and native code may print between them.
    program += "sys.stdout.write(f'{len(jax.local_devices())} {os.environ[\"NPROC\"]} ')\n"
    for code, out, err in outputs(tmp_path, program=program, options=options):
        # Native code may write its note on connections before or after it.
        said = re.findall(r"\b4 \d+(?= )", out)
        assert (code, said) == (0, [f"4 {max(32, os.cpu_count() or 1)}"]), (out, err)


def test_a_verdict_that_is_caught_is_told_at_the_exit(tmp_path: Path) -> None:
    program = INSTALL + CAUGHT
    (code, out, err), (other, said, told) = outputs(tmp_path, "diverge", program=program)
    assert (code, without_gloo(out), err) == (0, ["[0, 1]"], "")
    assert (other, without_gloo(said)) == (0, ["[0, 1]", "caught"])
    assert told == (
        "mcnb.lockstep: the program caught a LockstepError and went on: missing: process 1 is "
        "waiting in process_allgather, program.py:11; process 0 exited without reaching it\n"
    )


@pytest.mark.parametrize("times", [pytest.param(1, marks=MORE), 2])
def test_a_program_that_catches_its_verdict_fails(tmp_path: Path, times: int) -> None:
    before, again, after = CAUGHT.partition("    try:")
    program = before + (again + after) * times
    said = outputs(tmp_path, "diverge", program=program, options=("-m", "mcnb.lockstep"))
    assert [(code, without_gloo(out)) for code, out, _ in said] == [
        (0, ["[0, 1]"]),
        (1, ["[0, 1]", *["caught"] * times]),
    ]
    assert said[1][2] == (
        "python -m mcnb.lockstep: the program caught a LockstepError and went on: missing: process "
        "1 is waiting in process_allgather, program.py:9; process 0 exited without reaching it\n"
    )
