"""Cells that are to be stopped, and the proof that what is said of them afterwards is true."""

from __future__ import annotations

import contextlib
import os
import signal
import textwrap
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import psutil
import pytest

import mcnb
from mcnb._system import RunningClock
from mcnb.cluster.execution import Execution
from mcnb.cluster.outcome import Outcome
from mcnb.cluster.workers import Pending
from tests.conftest import wait_until
from tests.support.healing import SETUP
from tests.support.timing import since, slowdown

How = Literal["stop", "time limit", "second stop"]
HOWS: tuple[How, ...] = ("stop", "time limit", "second stop")
# When a cell is stopped after it has begun everywhere, and when it is for the second time. A time
# limit counts from there, too.
AFTER_S, AGAIN_S = 0.4, 0.45
TIME_LIMIT_S = 1.0
# What takes longer hangs.
HUNG_S = 120.0
TOLD_S, OVER_S, OVER_UNDER_LOAD_S = 0.3, 5.0, 10.0
# What four processes that do nothing use of a processor in a second: heartbeats, and this look. But
# first they may have to end the cell, which a busy machine delays.
IDLE_S, ENDS_S = 0.2, 2.0

# It is compiled before a cell says that it runs: until it is launched, there is nothing to stop.
ENDLESS = "x" * 200
LOOP = (
    "@jax.jit\n"
    "def loop(n, v): return lax.fori_loop(0, n, {}, v)\n"
    "loop(1, {}).block_until_ready()\n"
    "---\n"
)
COMPILED = LOOP.format("lambda i, v: v @ v", "ones := jnp.ones((64, 64))")
NATIVE = "loop(10**9, ones)"
SCALED = "lambda i, v: v * 1.0001"
# What comes of a cell that was told to end. A process that is busy at the moment may make it worse.
Fate = Literal["intact", "told", "healed", "replaced"]


@dataclass(frozen=True)
class Kind:
    """A kind of cell.

    Attributes:
        source: Its code, of which one process or all run the part after a line of dashes.
        fates: What may come of a single stop.
        alone: Whether a single process can run it.
    """

    source: str
    fates: tuple[Fate, ...] = ("intact",)
    alone: bool = True

    def cell(self, processes: Literal["one", "all"]) -> str:
        """Return the code of a cell in which one process runs it, or all do."""
        before, _, body = self.source.rpartition("---\n")
        said = f"print('running', flush=True)\n{body}"
        if processes == "one":
            said = f"if k == 1:\n{textwrap.indent(said, '    ')}"
        return f"import time, threading, subprocess, ctypes\n{before}{said}"


KINDS: dict[str, Kind] = {
    "a loop in Python": Kind("while True: pass"),
    "a sleep": Kind("time.sleep(1000)"),
    "a sleep in C": Kind("ctypes.CDLL(None).sleep(1000)"),
    "a sleep in C with the GIL": Kind("ctypes.PyDLL(None).sleep(1000)"),
    "a subprocess": Kind("subprocess.run(['sleep', '1000'])"),
    "a shell command": Kind("get_ipython().system('sleep 1000')"),
    "os.system": Kind("os.system('sleep 1000')"),
    "os.system again and again": Kind("while True: os.system('sleep 1000')"),
    "a subprocess that ignores interrupts": Kind(
        "subprocess.run(['sh', '-c', 'trap \"\" INT; sleep 1000; true'])", ("told", "intact")
    ),
    "a bare except": Kind("while True:\n    try:\n        time.sleep(0.01)\n    except: pass"),
    "except KeyboardInterrupt": Kind(
        "while True:\n    try:\n        time.sleep(60)\n    except KeyboardInterrupt:\n        pass"
    ),
    "a finally that takes its time": Kind(
        "try:\n    time.sleep(1000)\nfinally:\n    time.sleep(0.3)\n    cleaned = True"
    ),
    "SIGINT ignored": Kind(
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(0.01)"
    ),
    "NumPy, again and again": Kind("b = np.ones((300, 300))\nwhile True: b = b @ np.eye(300)"),
    "NumPy, once": Kind("long = np.ones(3 * 10**6)\n---\nnp.convolve(long, long)", ("replaced",)),
    "a loop in C with the GIL": Kind("sum(range(10**13))", ("replaced",)),
    "a regular expression": Kind("import re\nre.match('(a+)+$', 'a' * 60 + 'b')"),
    "a loop on one device": Kind(f"{COMPILED}{NATIVE}.block_until_ready()", ("replaced",)),
    "a loop that is not waited for": Kind(
        f"{COMPILED}t = {NATIVE}\ntime.sleep(1000)", ("replaced",)
    ),
    "a loop without a result": Kind(f"{COMPILED}{NATIVE}\ntime.sleep(1000)", ("replaced",)),
    "a hundred loops": Kind(f"{COMPILED}for _ in range(100): {NATIVE}", ("replaced",)),
    "a loop on the devices of each process": Kind(
        "local = jax.sharding.Mesh(np.array(jax.local_devices()), ('d',))\n"
        "v = jax.device_put(np.ones((64, 64)), NamedSharding(local, P('d')))\n"
        f"{LOOP.format(SCALED, 'v')}"
        "loop(2**31 - 1, v).block_until_ready()",
        ("replaced",),
    ),
    "a loop on all devices": Kind(
        f"{LOOP.format(SCALED, 'x')}loop(2**31 - 1, x).block_until_ready()", ("replaced",)
    ),
    "a loop on all devices, printed": Kind(
        f"{LOOP.format(SCALED, 'x')}print(loop(2**31 - 1, x).addressable_shards[0].data)",
        ("replaced",),
    ),
    "a loop with collectives": Kind(
        f"{LOOP.format('lambda i, v: v + v.sum() * 0', 'x')}print(float(loop(10**9, x).sum()))",
        # Now and then, XLA still waits on one process when its connections have been closed.
        ("healed", "replaced"),
        alone=False,
    ),
    "collectives, again and again": Kind(
        # Healed, where one process had launched the sum and another one had not.
        "while True: float(jnp.sum(x))",
        ("intact", "healed"),
        alone=False,
    ),
    "a program that hangs": Kind(
        "f = jax.jit(jax.shard_map(lambda v: lax.cond(lax.axis_index('a') == 0,\n"
        "    lambda u: lax.psum(u, 'a'), lambda u: u, v),\n"
        "    mesh=mesh, in_specs=P('a', 'b'), out_specs=P('a', 'b'), check_vma=False))\n"
        "np.asarray(f(x).addressable_shards[0].data)",
        ("healed", "intact"),
        alone=False,
    ),
    "a launch that the others never make": Kind(
        "if k != 2: float(jnp.sum(x))\nelse: time.sleep(1000)", alone=False
    ),
    "a key that no process sets": Kind(
        "from jax._src import distributed\n"
        "distributed.global_state.client.blocking_key_value_get(f'{k} {os.urandom(4)}', 60000)"
    ),
    "a barrier that one process does not reach": Kind(
        "from jax._src import distributed\n"
        "if k == 2: time.sleep(1000)\n"
        "distributed.global_state.client.wait_at_barrier('stopped', 60000)",
        alone=False,
    ),
    "a callback": Kind(
        "def never(v):\n"
        "    while True: time.sleep(0.05)\n"
        "shape = jax.ShapeDtypeStruct((), np.float32)\n"
        "print(jax.jit(lambda v: jax.pure_callback(never, shape, v))(np.float32(1)))",
        ("intact", "healed"),
    ),
    "a compilation": Kind(
        "def deep(v):\n    for _ in range(1500): v = jnp.sin(v) @ v\n    return v\n"
        "lowered = jax.jit(deep).lower(jnp.ones((8, 8)))\n"
        "---\n"
        "lowered.compile()\n"
        # It must not end by itself.
        "for n in range(9, 1000): jax.jit(deep).lower(jnp.ones((n, n))).compile()",
        # What comes of it depends on how long it still takes.
        ("intact", "told", "healed", "replaced"),
    ),
    "a lock": Kind("lock = threading.Lock()\nlock.acquire()\nlock.acquire()"),
    "a queue": Kind("import queue\nqueue.Queue().get()"),
    "a full pipe": Kind("r, w = os.pipe()\nwhile True: os.write(w, b'x' * 65536)"),
    "output without end": Kind(f"while True: print({ENDLESS!r})"),
    "a coroutine": Kind("import asyncio\nawait asyncio.sleep(1000)"),
    "a thread that is joined": Kind(
        "def work():\n    while True: pass\n"
        "thread = threading.Thread(target=work)\nthread.start()\nthread.join()"
    ),
    "a thread that is left": Kind(
        "def work():\n    while True: time.sleep(0.01)\n"
        "thread = threading.Thread(target=work, daemon=True)\nthread.start()\ntime.sleep(1000)"
    ),
    "a thread that sleeps": Kind(
        "def work(): time.sleep(1000)\n"
        "thread = threading.Thread(target=work, daemon=True)\nthread.start()\ntime.sleep(1000)",
        ("told",),
    ),
    "a thread in native code": Kind(
        f"{COMPILED}def work(): {NATIVE}.block_until_ready()\n"
        "thread = threading.Thread(target=work, daemon=True)\nthread.start()\nthread.join()",
        ("replaced", "told"),
    ),
    "steps that nothing waits for": Kind(
        # Up to the limit of the backend, the launches of further steps wait for the first ones.
        "step = jax.jit(lambda v: v + v.sum() * 0)\n"
        "step(x).block_until_ready()\n"
        "---\n"
        "v = x\nwhile True: v = step(v)",
        ("intact", "healed"),
        alone=False,
    ),
}


def limit_from(monkeypatch: pytest.MonkeyPatch, seen: Callable[[Pending], bool]) -> None:
    """Let time limits count from when something is seen of a cell, on a busy machine much later."""
    over = Execution._over

    def over_when_seen(self: Execution, pending: Pending, outcome: Outcome) -> bool:
        if not seen(pending):
            pending.clock = RunningClock()
        return over(self, pending, outcome)

    monkeypatch.setattr(Execution, "_over", over_when_seen)


@dataclass
class Stopped:
    """What was seen of a cell that was stopped.

    Attributes:
        told_s: How long it took until something was said, in seconds.
        over_s: How long it took until the cell was over.
        fate: What was said to have come of it.
        aftermath: What was said, in full.
        wrong: What of that was not true, in words; empty if all was.
    """

    told_s: float
    over_s: float
    fate: Fate
    aftermath: str
    wrong: str = ""


def fate_of(aftermath: str) -> Fate:
    """Return what is said to have come of a cell."""
    if "their variables are lost" in aftermath:
        return "replaced"
    if ": %mcjax restart (variables are lost)" in aftermath:
        return "told"
    return "healed" if "was healed" in aftermath else "intact"


def stop_cell(
    cluster: mcnb.Cluster, kind: Kind, processes: Literal["one", "all"], how: How
) -> Stopped:
    """Run a cell, stop it, and look whether what is said of it is true.

    Args:
        cluster: A cluster, prepared with `SETUP`.
        kind: The kind of cell.
        processes: Whether one process runs it, or all do.
        how: How it is ended.
    """
    pids = list(cluster.pull("pid").values())
    asked: list[float] = []
    told: list[float] = []
    pressing = threading.Lock()
    ended: list[bool] = []  # guarded by `pressing`: a late press would interrupt the tests

    def runs() -> bool:
        running = cluster._lifetime.processes
        assert running is not None
        ks = [1] if processes == "one" else range(4)
        said = [running.last_words(k).said for k in ks]
        # Only the newest output is kept, so the first line may be gone already.
        return all("running" in text or ENDLESS in text for text in said)

    def watch(pending: Pending) -> None:
        if how == "time limit" and not asked:
            pending.clock = RunningClock()
            if runs():
                asked.append(time.monotonic() + TIME_LIMIT_S)
        if pending.stage and not told:
            told.append(time.monotonic())

    def press() -> None:
        wait_until(runs, HUNG_S)
        # A busy machine takes longer to launch what is to be stopped while it computes.
        time.sleep(AFTER_S * slowdown())
        with pressing:
            if not ended:
                asked.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)
        if how == "second stop":
            time.sleep(AGAIN_S)
            cluster.interrupt()

    thread = threading.Thread(target=press)
    if how == "time limit":
        cluster.run(kind.cell(processes), timeout=TIME_LIMIT_S, watcher=watch)
    else:
        thread.start()
        with contextlib.suppress(KeyboardInterrupt):
            cluster.run(kind.cell(processes), watcher=watch)
            with pressing:
                ended.append(True)
            # It ended by itself, which is a fault of the test.
            raise AssertionError(cluster.last and cluster.last.text())
    over = time.monotonic()
    if thread.ident is not None:
        thread.join()
    assert cluster.last is not None
    aftermath = cluster.last.aftermath
    stopped = Stopped(
        told[0] - asked[0] if told else 99.0, over - asked[0], fate_of(aftermath), aftermath
    )
    stopped.wrong = "; ".join(lies(cluster, stopped.fate, pids))
    return stopped


def processor_time(pids: Iterable[int]) -> float:
    """Return how much processor time processes have used, in seconds."""
    used = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            used += times.user + times.system
    return used


def lies(cluster: mcnb.Cluster, fate: Fate, pids: list[int]) -> list[str]:
    """Return what is not as it was said to be, after a cell was stopped.

    Args:
        cluster: The cluster.
        fate: What was said to have come of it.
        pids: The processes that ran the cell.
    """
    wrong = []
    if fate in ("intact", "healed"):
        began = last = processor_time(pids)
        while True:
            looked = time.monotonic()
            time.sleep(1)
            before, last = last, processor_time(pids)
            if last - before <= IDLE_S * since(looked):
                break
            if last - began > ENDS_S:
                wrong.append(f"the processes used {last - began:.2f} s of processor time")
                break
    after = cluster.run(
        "import os, jax, numpy as np\n"
        "from jax.experimental import multihost_utils\n"
        "one = [jax.device_put(np.ones(2), device) + 1 for device in jax.local_devices()]\n"
        "each = multihost_utils.process_allgather(np.array([jax.process_index()]))\n"
        "print([float(v.sum()) for v in one], np.ravel(each).tolist())\n",
        timeout=HUNG_S,
    )
    if after.text() != "[all 4] [4.0, 4.0] [0, 1, 2, 3]\n":
        wrong.append(f"the next cell failed: {after.text()}")
    now = list(cluster.pull("__import__('os').getpid()").values())
    if (fate == "replaced") != (now != pids):
        wrong.append("the processes are others" if now != pids else "the processes are the same")
    if fate != "replaced":
        kept = cluster.run(
            "assert os.getpid() == pid\n"
            "found = [np.asarray(shard.data) for shard in big.addressable_shards]\n"
            "assert all(map(np.array_equal, found, parts))\n"
            "float(jnp.sum(x))"
        )
        if kept.text() != "[all 4] 496.0\n":
            wrong.append(f"variables were not kept: {kept.text()}")
    if fate == "told":
        cluster.restart()  # as the message says
    if fate in ("replaced", "told"):
        if alive := [pid for pid in pids if psutil.pid_exists(pid)]:
            wrong.append(f"{len(alive)} of the processes that were to end run on")
        cluster.run(SETUP).raise_for_errors()
    return wrong
