"""Keys of a cluster: JAX's coordinator accepts nobody who lacks them."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from mcnb.launchers.credentials import make_credentials
from mcnb.worker.settings import Settings, leave_settings
from tests.support.ports import reserved_port

HANG_S = 120
PROGRAM = """
import sys
from mcnb.worker.settings import protection, take_settings
folder, address, k = sys.argv[1], sys.argv[2], int(sys.argv[3])
take_settings([f"--profile-dir={folder}"] if folder else [])
import jax
from jax.experimental import multihost_utils
print("begins", flush=True)
jax.distributed.initialize(
    address, 2, k, initialization_timeout=int(sys.argv[4]), coordinator_bind_address=address,
    **protection(jax.distributed.initialize),
)
print(jax.device_count(), flush=True)
sys.stdin.readline()
print(multihost_utils.process_allgather(k), flush=True)
"""

pytestmark = [
    pytest.mark.thorough("strangers who wait in vain"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl"),
    pytest.mark.skipif(
        "mtls_cert_file" not in inspect.signature(jax.distributed.initialize).parameters,
        reason="this version of JAX has no TLS",
    ),
]


def start(folder: Path | str, address: str, k: int, wait_s: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), address, str(k), str(wait_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    return process


def test_a_stranger_can_neither_join_nor_disturb(tmp_path: Path) -> None:
    for name in ("cluster", "another"):
        leave_settings(Settings(credentials=make_credentials()), tmp_path / name)
    running = []
    with reserved_port() as port:
        address = f"127.0.0.1:{port}"
        try:
            running.append(start(tmp_path / "cluster", address, 0, HANG_S))
            # In the place of process 1, which is still to come: without a key, and with another.
            for folder in ("", tmp_path / "another"):
                stranger = start(folder, address, 1, 3)
                running.append(stranger)
                out, _ = stranger.communicate(timeout=HANG_S)
                assert (out, stranger.returncode != 0) == ("", True)
            running.append(start(tmp_path / "cluster", address, 1, HANG_S))
            own = [running[0], running[-1]]
            for process in own:
                assert process.stdout is not None
                assert process.stdout.readline() == "2\n"
            # When both have joined.
            stranger = start("", address, 1, 3)
            running.append(stranger)
            assert stranger.communicate(timeout=HANG_S)[0] == ""
            for process in own:
                assert process.stdin is not None
                print(file=process.stdin, flush=True)
            said = [process.communicate(timeout=HANG_S)[0].splitlines()[-1] for process in own]
            assert said == ["[0 1]", "[0 1]"]
        finally:
            for process in running:
                process.kill()
                process.communicate()
