"""Which process is this: all ways in which JAX learns it, with all ways to have a program checked.

`srun` and `mpirun` themselves are in `test_launchers`; here, the processes have their variables.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mcnb._system import reserved_port
from mcnb.lockstep.runner import UNKNOWN
from tests.conftest import once
from tests.integration.test_install import without_gloo
from tests.integration.test_run import MISSING, at_line, run, told

pytestmark = pytest.mark.thorough("two processes for each of many identities", once=True)

# Only ends what hangs, on however busy a machine.
HANG_S = 240
PROGRAM = """\
import os, sys
{install}import jax
jax.config.update("jax_platforms", "cpu")
jax.distributed.initialize({call})
from jax.experimental import multihost_utils
print(multihost_utils.process_allgather(jax.process_index()).tolist(), flush=True)
if jax.process_index() == 1:
    multihost_utils.process_allgather(1)
"""
INSTALL = "import mcnb.lockstep; mcnb.lockstep.install(); "
# By name: the arguments of the program's call, and the environment of process k, whose coordinator
# may use a port.
EXPLICIT = "'127.0.0.1:{port}', int(os.environ['N']), int(os.environ['K'])"
IDENTITIES: dict[str, tuple[str, Callable[[int, int], dict[str, str]]]] = {
    "arguments": (EXPLICIT, lambda k, port: {"N": "2", "K": f"{k}"}),
    "arguments, and an address from the environment": (
        "num_processes=2, process_id=int(os.environ['JAX_PROCESS_ID'])",
        lambda k, port: {
            "JAX_COORDINATOR_ADDRESS": f"localhost:{port}",
            "JAX_NUM_PROCESSES": "2",
            "JAX_PROCESS_ID": f"{k}",
        },
    ),
    "arguments from torchrun's variables": (
        "f\"{{os.environ['MASTER_ADDR']}}:{port}\", int(os.environ['WORLD_SIZE']), "
        "int(os.environ['RANK'])",
        lambda k, port: {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2", "RANK": f"{k}"},
    ),
    # The arguments win, for JAX and for the check: one of two jobs in an allocation, for example.
    "arguments that differ from the launcher's": (
        EXPLICIT,
        lambda k, port: {
            "N": "2",
            "K": f"{k}",
            "PMI_RANK": f"{3 - k}",
            "PMI_SIZE": "4",
            "SLURM_PROCID": f"{k + 2}",
            "SLURM_STEP_NUM_TASKS": "4",
            "SLURM_NTASKS": "4",
        },
    ),
    "Slurm's variables": (
        "",
        lambda k, port: {
            "SLURM_JOB_ID": f"{(port + 1) % 2**12}",
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_NTASKS": "2",
            "SLURM_PROCID": f"{k}",
            "SLURM_LOCALID": f"{k}",
            "SLURM_STEP_NUM_NODES": "1",
            "JAX_COORDINATOR_PORT": f"{port}",
        },
    ),
    "Open MPI's variables": (
        "",
        lambda k, port: {
            "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://127.0.0.1:34911",
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_RANK": f"{k}",
            "OMPI_COMM_WORLD_LOCAL_RANK": f"{k}",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            "JAX_COORDINATOR_PORT": f"{port}",
        },
    ),
    "a method of its own": (
        "cluster_detection_method='ours'",
        lambda k, port: {"K": f"{k}", "PORT": f"{port}"},
    ),
}
# A launcher that neither JAX nor mcnb knows, as a package may teach JAX another.
OURS = """\
from jax._src.clusters import ClusterEnv
class Ours(ClusterEnv):
    name = "ours"
    opt_in_only_method = True
    is_env_present = classmethod(lambda cls: True)
    get_process_count = classmethod(lambda cls: 2)
    get_process_id = classmethod(lambda cls: int(os.environ["K"]))
    get_coordinator_address = classmethod(lambda cls, **_: "127.0.0.1:" + os.environ["PORT"])
"""
PROMISE = pytest.mark.promise("the identities that JAX accepts")
PROMISED = ("arguments, and an address from the environment", "Slurm's variables")


def verdict_at(place: str) -> str:
    return (
        f"missing: process 1 is waiting in process_allgather, {place}; process 0 exited without "
        "reaching it. Hint: this line runs only if `jax.process_index() == 1`. A collective must "
        "run on every participating process: move it out of the condition, and keep only local "
        "work such as printing inside"
    )


def outputs(
    folder: Path,
    program: str,
    options: tuple[str, ...],
    environment: Callable[[int], dict[str, str]],
) -> list[tuple[int, list[str], str]]:
    """Return the exit codes and outputs of two processes that a shell could have started."""
    (folder / "program.py").write_text(program)
    running = [
        subprocess.Popen(
            [sys.executable, *options, "program.py"],
            cwd=folder,
            env={**os.environ, "MCNB_FOLDER": str(folder / "shared"), **environment(k)},
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
    return [
        (process.returncode, without_gloo(out), err)
        for process, (out, err) in zip(running, said, strict=True)
    ]


# How it is installed and who JAX takes it for are independent: the second Python tries one way.
@pytest.mark.parametrize("by", [pytest.param("install", marks=once), "python -m"])
@pytest.mark.parametrize(
    ("call", "environment"),
    [
        pytest.param(*value, id=name, marks=[PROMISE] if name in PROMISED else [])
        for name, value in IDENTITIES.items()
    ],
)
def test_a_process_is_whom_jax_takes_it_for(
    tmp_path: Path, call: str, environment: Callable[[int, int], dict[str, str]], by: str
) -> None:
    options = ("-m", "mcnb.lockstep") if by == "python -m" else ()
    with reserved_port() as port:
        program = PROGRAM.format(
            install="" if options else INSTALL, call=call.format(port=port)
        ).replace("import jax\n", f"import jax\n{OURS if 'ours' in call else ''}", 1)
        line = program.count("\n")
        said = outputs(tmp_path, program, options, lambda k: environment(k, port))
    assert [(code, out) for code, out, _ in said] == [(0, ["[0, 1]"]), (1, ["[0, 1]"])], said
    assert said[1][2].splitlines()[-1] == f"LockstepError: {verdict_at(f'program.py:{line}')}"


@pytest.mark.parametrize("by", ["install", "python -m"])
def test_where_nothing_says_which_process_it_is_jax_says_so(tmp_path: Path, by: str) -> None:
    options = ("-m", "mcnb.lockstep") if by == "python -m" else ()
    program = PROGRAM.format(install="" if options else INSTALL, call="")
    for code, out, err in outputs(tmp_path, program, options, lambda _: {}):
        last = [line for line in err.splitlines() if line[:1].strip()]
        assert (code, out) == (1, [])
        assert last[1:3] == ["ValueError: coordinator_address should be defined.", UNKNOWN]


@pytest.mark.parametrize("by", ["install", "python -m"])
def test_a_program_that_goes_on_alone(tmp_path: Path, by: str) -> None:
    """As trainers do that run on one host, too: it catches JAX's error."""
    options = ("-m", "mcnb.lockstep") if by == "python -m" else ()
    program = (
        "" if options else INSTALL
    ) + "import jax\ntry: jax.distributed.initialize()\nexcept ValueError: print('alone')\n"
    said = outputs(tmp_path, program, options, lambda _: {})
    note = (
        "python -m mcnb.lockstep: program.py never joined other processes by "
        "jax.distributed.initialize(), so it was not checked\n"
    )
    assert said == [(0, ["alone"], note if options else "")] * 2


# An allocation of Slurm in which `mcnb run` is started.
ELSEWHERE = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_NODELIST": "elsewhere",
    "SLURM_NTASKS": "9",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "5",
}
# The calls of programs that `mcnb run` starts, which has an address and numbers for each.
CALLS = {
    "nothing": "",
    "an address": "'localhost:{port}'",
    "numbers": "num_processes=2, process_id=int(sys.argv[1])",
    "numbers from the environment": (
        "num_processes=int(os.environ['N']), process_id=int(os.environ['K'])"
    ),
    "all": "'localhost:{port}', 2, int(sys.argv[1])",
    "a cluster's name": "cluster_detection_method='deactivate'",
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_mcnb_run_adds_what_a_program_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    for name, value in ELSEWHERE.items():
        monkeypatch.setenv(name, value)
    with reserved_port() as port:
        program = PROGRAM.format(install="", call=call.format(port=port))
        own = ("--env", "N={processes}", "--env", "K={process}")
        code, out, err = run(tmp_path, program, "train.py", "-n", "2", "-d", "1", *own, "{process}")
    assert (code, out) == (1, ["[0] [0, 1]", "[1] [0, 1]"])
    line = program.count("\n")
    sentence = verdict_at(f"train.py:{line}")
    assert told(err) == (
        f"{MISSING}[1] is waiting in process_allgather, train.py:{line}\n"
        f"{at_line(program, line, 3)}[0] exited without reaching it\n\n"
        f"{sentence[sentence.index('Hint: ') :]}"
    )
