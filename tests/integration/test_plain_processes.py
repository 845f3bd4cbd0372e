"""The same client and referee between plain Python processes, without a notebook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from mcnb._system import reserved_port
from mcnb.lockstep.server import Server
from mcnb.worker.capture import GlooFilter

# Only ends what hangs, on however busy a machine.
HANG_S = 240
BEGIN = """
import json, socket, sys, time
import numpy as np
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from mcnb.errors import LockstepError
from mcnb.lockstep.checking import check_launches
from mcnb.lockstep.source import Places, is_script
from mcnb.lockstep.wire import Address

k, port = int(sys.argv[1]), int(sys.argv[2])
while k:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
jax.distributed.initialize(f"127.0.0.1:{port}", 2, k)
jax.devices()
client = check_launches(Address(**json.loads(sys.argv[3])), k, Places(is_script))
mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
x = jax.device_put(np.arange(8.0).reshape(4, 2), NamedSharding(mesh, P("a", "b")))
"""
LINES = BEGIN.count("\n")


def run(folder: Path, program: str, host: str = "") -> list[tuple[int, str]]:
    """Run a program in two processes; return their exit codes and what they said."""
    script = folder / "train.py"
    script.write_text(BEGIN + program)
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu"}
    with Server(2, host=host) as server, reserved_port() as port:
        processes = [
            subprocess.Popen(
                [sys.executable, script, str(k), str(port), json.dumps(asdict(server.address))],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for k in range(2)
        ]
        try:
            said = [process.communicate(timeout=HANG_S) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    return [
        (process.returncode, GlooFilter().feed(out, final=True).strip())
        for process, (out, _) in zip(processes, said, strict=True)
    ]


CATCH = "try:\n    {}\nexcept LockstepError as error:\n    print(error)\n"


def test_a_program_that_parts(tmp_path: Path) -> None:
    said = run(tmp_path, CATCH.format("jnp.sum(x) if k else jnp.max(x)"))
    line = f"train.py:{LINES + 2}"
    sentence = (
        f"mismatch: process 0 is waiting in max f32[4,2], {line}; process 1 is waiting in sum "
        f"f32[4,2], {line}. "
        "Hint: the order of launches must not depend on the process. If it comes from a set or "
        "from a directory listing, sort the elements first; if it is random, draw from one seed"
    )
    assert said == [(0, sentence), (0, sentence)]


def test_a_process_that_ends_early(tmp_path: Path) -> None:
    # Waited for: JAX itself can hang at its end while a computation is still on its way.
    said = run(tmp_path, "float(jnp.sum(x))\n" + CATCH.format("if k == 0: jnp.sum(x)"))
    assert said[0] == (
        0,
        f"missing: process 0 is waiting in sum, train.py:{LINES + 3}; process 1 exited without "
        f"reaching it",
    )


@pytest.mark.parametrize("host", ["", "127.0.0.1"], ids=["unix", "tcp"])
def test_a_correct_program(tmp_path: Path, host: str) -> None:
    program = (
        "if k: time.sleep(0.3)\nfor i in range(20): s = jnp.sum(x + i)\n"
        "print(float(s), len([r for r in client.records if r.launch.communicates]))\n"
    )
    said = run(tmp_path, program, host)
    assert [code for code, _ in said] == [0, 0]
    assert {text.split()[0] for _, text in said} == {"180.0"}
    assert {int(text.split()[1]) >= 20 for _, text in said} == {True}


def test_an_error_that_nobody_catches_names_the_line(tmp_path: Path) -> None:
    script = "def step(v):\n    return jnp.sum(v)\nif k == 1: step(x)\nclient.close()\n"
    [first, second] = run(tmp_path, script)
    assert first == (0, "")
    assert second[0] == 1
