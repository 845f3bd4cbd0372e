"""GPUs: each process has its own, and none has another's."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mcnb
from mcnb.worker.gpus import share, visible_gpus

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
        return subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; from mcnb.cli.main import main; sys.exit(main())",
                *words,
            ],
            capture_output=True,
            text=True,
            check=False,
        )

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
