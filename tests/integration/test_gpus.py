"""GPUs: each process has its own, and none has another's."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mcnb
from mcnb.worker.gpus import share, visible_gpus
from tests.support.command import MCNB

HOST = socket.gethostname()


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that tells of two GPUs, on a machine that has none."""
    command = tmp_path / "nvidia-smi"
    command.write_text(
        "#!/bin/sh\n"
        "echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-aaaa-0000-0000-000000000000)'\n"
        "echo 'GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-11111111-bbbb-0000-0000-000000000000)'\n"
    )
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("two_gpus")
def test_what_the_driver_tells() -> None:
    both = visible_gpus({})
    assert [gpu[:12] for gpu in both] == ["GPU-00000000", "GPU-11111111"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "1"}) == both[1:]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "GPU-1111"}) == both[1:]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}) == ()
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "7"}) == ()


def refusal(processes: int, each: int, there: int) -> str:
    gpus = "1 GPU" if each == 1 else f"{each} GPUs"
    return (
        f"{processes} processes x {gpus} need {processes * each} GPUs on the host {HOST}, which "
        f"has {there}: two processes can't have the same one. Start fewer processes, or name more "
        "hosts"
    )


@pytest.mark.usefixtures("two_gpus")
def test_more_processes_than_gpus() -> None:
    with pytest.raises(mcnb.ClusterError) as refused:
        mcnb.Cluster(3, 1, platform="cuda").start()
    assert str(refused.value) == f"The cluster did not start: {refusal(3, 1, 2)}"


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there is a driver")
def test_no_gpu_at_all() -> None:
    with pytest.raises(mcnb.ClusterError) as refused:
        mcnb.Cluster(4, 2, platform="cuda").start()
    assert str(refused.value) == (
        f"The cluster did not start: No NVIDIA GPU is available on the host {HOST}: "
        "nvidia-smi -L lists none, or CUDA_VISIBLE_DEVICES hides them. Without a GPU: "
        "--platform cpu"
    )


@pytest.mark.usefixtures("two_gpus")
def test_a_script(tmp_path: Path) -> None:
    program = tmp_path / "which.py"
    program.write_text("import os\nprint(os.environ['CUDA_VISIBLE_DEVICES'][:12])\n")

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        words = ("run", str(program), "--platform", "cuda", "--unchecked", *options)
        return subprocess.run([*MCNB, *words], capture_output=True, text=True, check=False)

    own = run("-n", "2", "-d", "1")
    assert sorted(own.stdout.splitlines()) == ["[0] GPU-00000000", "[1] GPU-11111111"]
    refused = run("-n", "2", "-d", "2")
    assert (refused.returncode, refused.stderr) == (1, f"{refusal(2, 2, 2)}\n")


@given(
    st.lists(
        st.tuples(st.sampled_from(["one", "two"]), st.sets(st.integers(0, 5)).map(sorted)),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 3),
)
def test_shares(seen: list[tuple[str, list[int]]], each: int) -> None:
    visible = [(host, [f"{host}-{gpu}" for gpu in gpus]) for host, gpus in seen]
    try:
        shares = share(visible, each)
    except mcnb.ClusterError:
        # Somebody would have had too few, when those before it had taken theirs.
        assert any(
            len(gpus) < each + sum(other == host for other, _ in visible[:i]) * each
            for i, (host, gpus) in enumerate(visible)
        )
        return
    taken = [gpu for one in shares for gpu in one]
    assert len(taken) == len(set(taken)) == each * len(visible)
    assert all(set(one) <= set(gpus) for one, (_, gpus) in zip(shares, visible, strict=True))


@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no GPU on this machine")
def test_a_real_gpu() -> None:
    with mcnb.Cluster(1, 1, platform="cuda") as cluster:
        result = cluster.run(
            "import jax, jax.numpy as jnp\n"
            "print(jax.devices()[0].platform, jax.device_count(), float(jnp.arange(4.0).sum()))"
        )
        assert result.stdout == {0: "gpu 1 6.0\n"}


@pytest.fixture
def gpu_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real GPU that two processes use as if each had its own.

    The driver lists it twice, in two ways to write its UUID. NCCL refuses two processes of a host
    that use the same GPU, so each tells NCCL that it is a host of its own.
    """
    if shutil.which("nvidia-smi") is None:
        pytest.skip("no GPU on this machine")
    asked = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    uuid = re.findall(r"UUID: ([^)]+)", asked.stdout)[0]
    command = tmp_path / "nvidia-smi"
    lines = [f"echo 'GPU {i}: a GPU (UUID: {one})'\n" for i, one in enumerate([uuid, uuid[:-1]])]
    command.write_text("#!/bin/sh\n" + "".join(lines))
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "def be_a_host(event='os.putenv', what=(b'CUDA_VISIBLE_DEVICES', b'')):\n"
        "    if event == 'os.putenv' and what[0] == b'CUDA_VISIBLE_DEVICES':\n"
        "        os.environ['NCCL_HOSTID'] = str(os.getpid())\n"
        "be_a_host()\n"
        "os.register_at_fork(after_in_child=be_a_host)\n"
        "# A process of a cluster replaces its environment after the fork, and then gets its GPU.\n"
        "sys.addaudithook(be_a_host)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("NCCL_IB_DISABLE", "1")


SHARED = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
split, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
x = jax.device_put(np.arange(1024, dtype=np.float32).reshape(2, 512), split)
a = jax.device_put(np.ones((1024, 1024), np.float32), split)
total = jax.jit(lambda x: x.sum())
"""
MISSING = "missing", "a participant is missing"
MISMATCH = "mismatch", "their launches do not match"
UNEQUAL = "mismatch", "a replicated argument differs"
# The end of a program, its verdict and how that begins. Some differ in what they compile.
ENDS = {
    "print(float(total(x)), float(jax.jit(lambda a: (a @ a.T).mean())(a)))": ("", ""),
    "if process == 0: total(x)": MISSING,
    "if process == 0: jax.jit(lambda a: (a @ a.T).mean())(a)": MISSING,
    "jax.jit(lambda a: (a @ a.T).sum() if process else (a @ a.T).mean())(a)": MISMATCH,
    "own = jax.device_put(np.full(8, 1.0 + process, np.float32), jax.local_devices()[0])\n"
    "both = jax.make_array_from_single_device_arrays((8,), whole, [own])\n"
    "jax.jit(lambda b, x: b.sum() + x.sum())(both, x)": UNEQUAL,
    "from jax.scipy.linalg import solve_triangular\n"
    "e = jax.device_put(np.eye(64, dtype=np.float32), whole)\n"
    "solve = lambda e: solve_triangular(e, e, lower=bool(process))\n"
    "jax.jit(lambda e, x: solve(e).sum() + x.sum())(e, x)": MISMATCH,
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("end", "expected"), ENDS.items(), ids=range(len(ENDS)))
@pytest.mark.usefixtures("gpu_twice")
def test_a_program_on_a_real_gpu(end: str, expected: tuple[str, str], tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(
        "import jax\njax.distributed.initialize()\nprocess = jax.process_index()\n"
        f"{SHARED}\n{end}\n"
    )
    run = subprocess.run(
        [*MCNB, "run", str(program), "-n", "2", "-d", "1", "--platform", "cuda"],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    said = [line for line in run.stderr.splitlines() if line.startswith("mcnb run: ")]
    if all(expected):
        assert run.returncode == 1
        assert said == [f"mcnb run: Processes diverged: {expected[1]}"], run.stderr
    else:
        assert (run.returncode, said) == (0, []), run.stderr
        assert sorted(run.stdout.splitlines()) == ["[0] 523776.0 1024.0", "[1] 523776.0 1024.0"]


BEGIN = f"import jax\nprocess = jax.process_index()\n{SHARED}"
# The sum, on every process.
TOTAL = dict.fromkeys(range(2), "523776.0\n")


@pytest.fixture
def cluster(gpu_twice: None) -> Iterator[mcnb.Cluster]:
    """Two processes with the arrays and functions of `SHARED`."""
    with mcnb.Cluster(2, 1, platform="cuda") as cluster:
        cluster.run(BEGIN).raise_for_errors()
        yield cluster


@pytest.mark.timeout(180)
def test_cells_on_a_real_gpu(cluster: mcnb.Cluster) -> None:
    for end, (kind, _) in ENDS.items():
        result = cluster.run(end)
        assert (result.verdict.kind if result.verdict else "") == kind, result.text()
    after = cluster.run("print(float(total(x)))")
    assert after.stdout == TOTAL, after.text()


@pytest.mark.timeout(180)
def test_callbacks_on_a_real_gpu(cluster: mcnb.Cluster) -> None:
    """They take their arguments on a CPU device, which each process has besides its GPUs."""
    result = cluster.run(
        "print(jax.default_backend(), len(jax.devices()), jax.local_devices(backend='cpu'))\n"
        "step = jax.jit(lambda x: (jax.debug.print('the sum is {}', x.sum()), x * 2)[1])\n"
        "step(x).block_until_ready()\n"
        "jax.effects_barrier()"
    )
    assert result.stdout[0].startswith("gpu 2 [CpuDevice(id=0)]\n"), result.text()
    assert "".join(result.stdout.values()).count("the sum is 523776.0\n") >= 1
    after = cluster.run("print(float(total(x)))")
    assert after.stdout == TOTAL, after.text()


@pytest.mark.timeout(180)
def test_an_unchecked_hang_on_a_real_gpu_ends_at_its_time_limit(cluster: mcnb.Cluster) -> None:
    """A process that waits for a GPU is never inactive, because CUDA polls."""
    result = cluster.run("if process == 0: float(total(x))", checked=False, timeout=3)
    assert result.verdict is not None
    assert result.verdict.kind == "missing"
    after = cluster.run(f"{BEGIN}\nprint(float(total(x)))")
    assert after.stdout == TOTAL, after.text()
