"""What can't be done is said in a sentence: what was given, what is allowed, what to do."""

from __future__ import annotations

import importlib.metadata
import re
import socket
import threading
import time
from typing import Any

import pytest

import mcnb
from mcnb._system import reserve_port
from mcnb.launchers import local
from mcnb.worker.cellcode import syntax_error
from tests.conftest import Notebook
from tests.support.timing import as_if_alone, since

pytestmark = pytest.mark.thorough("starts clusters that fail", once=True)

# A start that waits for what will never come takes minutes.
AT_ONCE_S = 60
RUNNING = "A cluster of 4 processes x 2 CPU devices is already running"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "start -n 0",
            "-n 0: the number of processes is a whole number from 1 to 512. For example: -n 4",
        ),
        (
            "start -n four",
            "-n four: the number of processes is a whole number from 1 to 512. For example: -n 4",
        ),
        (
            "start -n 2.5",
            "-n 2.5: the number of processes is a whole number from 1 to 512. For example: -n 4",
        ),
        (
            "start -n 1000",
            "-n 1000: the number of processes is a whole number from 1 to 512. For example: -n 4",
        ),
        (
            "start -d -1",
            "-d -1: the number of devices per process is a whole number from 1 to 2048. "
            "For example: -d 2",
        ),
        (
            "start --platform gpu",
            "--platform gpu: expected cpu, cuda (NVIDIA GPUs) or tpu. For example: --platform cuda",
        ),
        (
            "start --env NAME",
            "--env NAME: expected NAME=VALUE, without spaces around the sign. For example: --env "
            "JAX_ENABLE_X64=1",
        ),
        (
            "start --launch mpi",
            "%mcjax start --launch mpi: there is no option --launch. Options: -n, -d, --platform, "
            "--env, --unchecked, --values, --no-values, --args, --launcher, --hosts, --options, "
            "--listen. Help: %mcjax?",
        ),
        (
            "start -n",
            "%mcjax start -n: -n/--processes: expected one argument. Help: %mcjax?",
        ),
        ("start 'x", "%mcjax start 'x: No closing quotation. Help: %mcjax?"),
        (
            "strat",
            "%mcjax strat: there is no command strat. Did you mean start? Commands: start, "
            "connect, run, auto, status, last, log, vars, compare, debug, push, pull, "
            "timeline, interrupt, heal, restart, stop. Help: %mcjax?",
        ),
        (
            "pul x",
            "%mcjax pul x: there is no command pul. Did you mean pull? Commands: start, "
            "connect, run, auto, status, last, log, vars, compare, debug, push, pull, "
            "timeline, interrupt, heal, restart, stop. Help: %mcjax?",
        ),
        ("vars x", "%mcjax vars x: vars is given alone, without x. Help: %mcjax?"),
        ("last -n", "%mcjax last -n: -n/--processes: expected one argument. Help: %mcjax?"),
        ("heal --now", "%mcjax heal --now: heal has no options. Help: %mcjax?"),
        (
            "log x",
            "%mcjax log x: log takes nothing but its options, and not x. Options: --full. Help: "
            "%mcjax?",
        ),
        (
            "pull k + 1",
            "%mcjax pull k + 1: k + 1 is not the name of a variable. Its value: "
            "mcnb.current_cluster().pull('k + 1')",
        ),
        ("pull -p 0", "%mcjax pull -p 0: -p is not the name of a variable"),
        (
            "frobnicate",
            "%mcjax frobnicate: there is no command frobnicate. Commands: start, connect, run, "
            "auto, status, last, log, vars, compare, debug, push, pull, timeline, interrupt, "
            "heal, restart, stop. Help: %mcjax?",
        ),
        (
            "stop -n 3",
            "%mcjax stop -n 3: --processes is only accepted by %mcjax start. Help: %mcjax?",
        ),
    ],
)
@pytest.mark.promise("errors name what is allowed")
def test_a_line_that_can_not_be_done(notebook: Notebook, line: str, sentence: str) -> None:
    assert notebook.error(f"%mcjax {line}") == f"OptionError: {sentence}"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "-p 0,7",
            "-p 0,7: there is no process 7. This cluster has 4 processes: 0 to 3",
        ),
        (
            "-p 3-1",
            "-p 3-1: name processes by their index, as numbers and ranges with commas between "
            "them. For example: -p 0,2-3",
        ),
        (
            "-p all",
            "-p all: name processes by their index, as numbers and ranges with commas between "
            "them. For example: -p 0,2-3",
        ),
        (
            "--lockstep",
            "%%mcjax --lockstep: there is no option --lockstep. Options: -p, --unchecked, "
            "--values, --no-values, --timeout. Help: %%mcjax?",
        ),
    ],
)
@pytest.mark.promise("errors name what is allowed")
def test_a_cell_that_can_not_be_run(notebook: Notebook, line: str, sentence: str) -> None:
    assert notebook.error(f"%%mcjax {line}\n1") == f"OptionError: {sentence}"


def test_a_cluster_started_twice(notebook: Notebook) -> None:
    again = notebook.run("%mcjax start -n 4 -d 2")
    assert again.success
    assert again.stdout == "Ready: 4 processes x 2 CPU devices (already running)\n"
    assert notebook.error("%mcjax start -n 2") == (
        f"ClusterError: {RUNNING}. To start another one, stop this one first: %mcjax stop"
    )
    assert notebook.error("%mcjax start --env A=1") == (
        f"ClusterError: {RUNNING}, with other settings. To start another one, stop this one "
        "first: %mcjax stop"
    )


def test_a_stopped_cluster(empty_notebook: Notebook) -> None:
    empty_notebook.run("%mcjax start -n 1 -d 1")
    assert empty_notebook.run("%mcjax stop").stdout == "Stopped: 1 process x 1 CPU device\n"
    for cell in ("%%mcjax\nprint(1)", "import mcnb; mcnb.current_cluster().pull('x')"):
        assert empty_notebook.error(cell) == (
            "ClusterError: The cluster was stopped. Start it: %mcjax start"
        )
    assert empty_notebook.run("%mcjax status").stdout == (
        "1 process x 1 CPU device: it was stopped\n"
    )


@pytest.mark.promise("errors say what to do")
def test_no_cluster_yet(empty_notebook: Notebook) -> None:
    assert empty_notebook.run("%mcjax").stdout == "No cluster yet. Start one: %mcjax start\n"
    for command in ("stop", "restart", "interrupt"):
        assert empty_notebook.error(f"%mcjax {command}") == (
            "ClusterError: There is no cluster yet. Start one: %mcjax start -n 4 -d 2"
        )


def test_an_engine_that_dies_while_starting(empty_notebook: Notebook) -> None:
    error = empty_notebook.error("%mcjax start -n 2 --env JAX_PLATFORMS=nonsense")
    assert re.fullmatch(
        "ClusterError: The cluster did not start: both processes could not connect to the other "
        "processes. "
        "RuntimeError: Unable to initialize backend 'nonsense': Backend 'nonsense' is not in the "
        r"list of known backends: \[[a-z', ]+\]. "
        r"\(set JAX_PLATFORMS='' to automatically choose an available backend\)",
        error,
    )
    # The next cell does not start another cluster behind the user's back.
    assert empty_notebook.error("%%mcjax\n1") == f"{error}\nWhen that is fixed: %mcjax start"


def test_a_process_that_can_not_even_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "ENGINE_ARGS", [*local.ENGINE_ARGS, "--IPEngine.timeout=soon"])
    with pytest.raises(mcnb.ClusterError) as failed:
        mcnb.Cluster(1, 1).start()
    message = str(failed.value)
    assert message.startswith(
        "The cluster did not start: process 0 ended with exit code 1 during the start. Its last "
        "lines:"
    )
    assert "Bad config encountered during initialization" in message


def test_a_keeper_that_can_not_even_begin(tmp_path: Any) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif 'mcnb.launchers.forkserver' in sys.orig_argv: os._exit(1)\n"
    )
    began = time.monotonic()
    with pytest.raises(mcnb.ClusterError) as failed:
        mcnb.Cluster(1, env={"PYTHONPATH": str(tmp_path)}).start()
    assert as_if_alone(since(began)) < AT_ONCE_S
    assert str(failed.value) == (
        "The cluster did not start: The fork server, which starts and monitors the processes, has "
        "ended, and the processes with it. To restart the cluster (variables are lost): %mcjax "
        "restart"
    )


def test_a_port_is_held_until_the_coordinator_has_it() -> None:
    holder, port = reserve_port("127.0.0.1")
    with holder:
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", port))
        with socket.socket() as coordinator:  # gRPC binds it so
            coordinator.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            coordinator.bind(("127.0.0.1", port))


@pytest.mark.parametrize(
    ("versions", "sentence"),
    [
        ({}, "jax is not installed for this Python. Install it: {mend}"),
        ({"jax": "0.10.2"}, "jaxlib is not installed for this Python. Install it: {mend}"),
        (
            {"jax": "0.4.38", "jaxlib": "0.4.38"},
            "jax 0.4.38 is too old: mcnb needs 0.8 or newer. Install it: {mend}",
        ),
    ],
    ids=["no jax", "no jaxlib", "old jax"],
)
def test_no_jax_or_an_old_one(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], sentence: str
) -> None:
    def version(package: str) -> str:
        if package not in versions:
            raise importlib.metadata.PackageNotFoundError(package)
        return versions[package]

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(mcnb.ClusterError) as missing:
        mcnb.Cluster().start()
    mend = 'python -m pip install --upgrade "jax>=0.8" "jaxlib>=0.8"'
    assert str(missing.value) == sentence.format(mend=mend)


def test_a_plot_without_a_display(cluster: mcnb.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster.run("import os; os.environ.pop('DISPLAY', None);").ok
    assert cluster.run("import matplotlib.pyplot as plt; plt.figure(); plt.show()").ok


def test_calling_a_start_that_another_thread_is_at(empty_notebook: Notebook) -> None:
    cluster = mcnb.Cluster(1, 1)
    errors = []

    def start() -> None:
        try:
            cluster.start()
        except mcnb.ClusterError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cluster.stop()
    assert errors == [
        "The cluster is already running, with 1 process x 1 CPU device. To restart it (variables "
        "are lost): %mcjax restart. To change its size, stop it first: %mcjax stop"
    ]


def test_null_bytes_are_a_syntax_error_too() -> None:
    error = syntax_error("x = '\0'", "1", 1)
    assert error is not None
    assert error.name == "SyntaxError"
