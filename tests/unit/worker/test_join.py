"""How processes find each other: where each is, in which order, and who it is among them."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.lockstep import _jax
from mcnb.worker import join as joining
from mcnb.worker.join import Location, heal, in_order, join, locate, numbers_are_right
from tests.support.timing import running_clock_by

RANKS = ("MCNB_TRIAL_RANK", "MCNB_TRIAL_PROCID")


@given(st.permutations(range(6)))
def test_ranks_order_processes(ranks: list[int]) -> None:
    found = [Location("one", "10.0.0.1", rank, "") for rank in ranks]
    assert [found[i].rank for i in in_order(found)] == list(range(6))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=12))
def test_neighbours_share_a_host(hosts: list[int]) -> None:
    """Without ranks, or with those of another job: in the order of the hosts' numbers."""
    found = [Location(f"node{n}", f"10.0.0.{n}", 0, "") for n in hosts]
    order = in_order(found)
    assert sorted(order) == list(range(len(hosts)))
    if len(hosts) > 1:
        assert [hosts[i] for i in order] == sorted(hosts)


def test_numbers_in_names_of_hosts_are_numbers() -> None:
    names = ["node10", "node9", "a", "node9-2", "node9-10", "node9"]
    found = [Location(name, f"10.0.0.{9 - i}", None, "") for i, name in enumerate(names)]
    order = ["a", "node9", "node9", "node9-2", "node9-10", "node10"]
    assert [found[i].host for i in in_order(found)] == order
    # Two hosts may have one name.
    assert [found[i].address for i in in_order(found)][1:3] == ["10.0.0.4", "10.0.0.8"]


def test_without_the_ranks_of_all_none_counts() -> None:
    ranks = [1, None, 0]
    found = [Location(f"node{i}", "", rank, "") for i, rank in enumerate(ranks)]
    assert in_order(found) == [0, 1, 2]


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, None),
        ({RANKS[1]: "3"}, 3),
        ({RANKS[0]: "2", RANKS[1]: "3"}, 2),
        ({RANKS[0]: "first"}, None),
        ({RANKS[0]: ""}, None),
    ],
)
def test_where_a_process_is(
    variables: dict[str, str], rank: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell: Any = SimpleNamespace(worker=SimpleNamespace(output="/x/process"))
    monkeypatch.setattr(socket, "gethostname", lambda: "node1")
    monkeypatch.setattr(joining, "local_end", {"kernel": "10.0.0.1"}.get)
    monkeypatch.setattr(joining, "visible_gpus", lambda environment: ("GPU-a",))
    for name in RANKS:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for platform, gpus in (("cpu", ()), ("cuda", ("GPU-a",)), ("cuda,cpu", ("GPU-a",))):
        monkeypatch.setenv("JAX_PLATFORMS", platform)
        assert locate(shell, "kernel", RANKS) == Location(
            "node1", "10.0.0.1", rank, "/x/process", gpus
        )


class Process:
    """A process with engine id 5 that JAX gives an index and some devices.

    Attributes:
        entered: What the session was told.
        taken: How often the record was emptied.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, index: int, devices: int) -> None:
        self.entered: list[tuple[Any, ...]] = []
        self.connected: list[tuple[Any, ...]] = []
        self.taken = 0
        monkeypatch.setattr(joining, "_connect", self._connect)
        monkeypatch.setattr(jax, "process_index", lambda: index)
        monkeypatch.setattr(jax, "local_device_count", lambda: devices)
        self.shell: Any = SimpleNamespace(
            kernel=SimpleNamespace(engine_id="5"),
            worker=SimpleNamespace(
                output="/x/process", session=SimpleNamespace(enter=self._enter), process_index=0
            ),
        )

    def _connect(self, *words: Any) -> int:
        self.connected.append((*words, os.environ.get("CUDA_VISIBLE_DEVICES")))
        return 77

    def _enter(self, *words: Any) -> str:
        self.entered.append(words)
        return "no checks"


REFEREE: Any = ("host", 9)


def test_who_a_process_is_among_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done: list[str] = []
    monkeypatch.setattr(joining, "forget", lambda output: done.append(f"forgets {output}"))
    monkeypatch.setattr(joining, "leave", lambda: done.append("leaves"))
    process = Process(monkeypatch, index=2, devices=3)
    for alone in ("", "leaves", "forgets"):
        told = join(process.shell, "host:7", 4, REFEREE, {4: 0, 5: 2}, alone)
        assert told == (77, "no checks")
        referee, index, gone = process.entered[-1]
        assert (referee, index) == (REFEREE, 2)
        assert (gone is None) == (not alone)
        if gone is not None:
            gone()
    assert done == ["leaves", "forgets /x/process"]
    assert process.connected == [("host:7", 4, 2, "")] * 3
    assert process.shell.worker.process_index == 2


def test_a_process_has_its_own_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    process = Process(monkeypatch, index=1, devices=2)
    gpus = [("GPU-a",), ("GPU-b", "GPU-c")]
    join(process.shell, "host:7", 2, REFEREE, {5: 1}, "", gpus)
    assert process.connected == [("host:7", 2, 1, "GPU-b,GPU-c")]


@pytest.mark.parametrize(
    ("index", "devices", "said"), [(0, 2, "index 0 and 2 devices"), (1, 1, "index 1 and 1 device")]
)
def test_a_process_that_jax_takes_for_another(
    index: int, devices: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "2")
    process = Process(monkeypatch, index, devices)
    with pytest.raises(RuntimeError) as refused:
        join(process.shell, "host:7", 2, REFEREE, {5: 1}, "leaves")
    assert str(refused.value) == (
        f"JAX started this process with {said}; index 1 and 2 devices were expected. Check the "
        "JAX_* variables and XLA_FLAGS in the environment"
    )
    assert process.entered == []


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("listens_after_s", [0.0, 3.0, 1000.0])
def test_the_coordinator_may_come_later(
    listens_after_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(joining, "time", clock)
    monkeypatch.setattr(joining, "RunningClock", running_clock_by(clock.monotonic))
    asked: list[tuple[str, int]] = []

    def connect(address: tuple[str, int], timeout: float) -> Any:
        asked.append(address)
        if clock.now < 1000.0 + listens_after_s:
            raise ConnectionRefusedError
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(socket, "create_connection", connect)
    if listens_after_s > joining.CONNECT_TIMEOUT_S:
        with pytest.raises(ConnectionRefusedError):
            joining._wait_for_listener("host:7")
        assert clock.now == pytest.approx(1000.0 + joining.CONNECT_TIMEOUT_S, abs=0.1)
    else:
        joining._wait_for_listener("host:7")
        assert clock.now == pytest.approx(1000.0 + listens_after_s, abs=0.1)
    assert set(asked) == {("host", 7)}


@pytest.mark.parametrize(("runs_s", "kept"), [(0.0, False), (0.1, False), (60.0, True)])
def test_a_heal_gives_callbacks_a_moment(
    runs_s: float, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If they still run, JAX's client is kept, whose computations call them."""
    clock = Clock()
    monkeypatch.setattr(joining, "time", clock)
    monkeypatch.setattr(joining, "RunningClock", running_clock_by(clock.monotonic))
    monkeypatch.setattr(joining, "_connect", lambda *words: words)
    done: list[Any] = []

    def heal_here(names: Any, rejoin: Any, *, keep_client: bool) -> str:
        done.append((names, keep_client, clock.now - 1000.0 <= joining.CALLBACKS_S + 0.1))
        rejoin()
        return "healed"

    monkeypatch.setattr(joining, "heal_here", heal_here)
    monkeypatch.setattr(gc, "collect", lambda: done.append("collected"))
    shell: Any = SimpleNamespace(
        user_ns={"x": 1},
        worker=SimpleNamespace(
            process_index=2,
            forget_failure=lambda: None,
            session=SimpleNamespace(
                callbacks_run=lambda: clock.now < 1000.0 + runs_s,
                suspended=lambda: contextlib.nullcontext(),
            ),
            monitor=SimpleNamespace(watching=lambda: contextlib.nullcontext()),
            record=SimpleNamespace(take=lambda: done.append("taken")),
        ),
    )
    healed: Any = heal(shell, "host:8", 4)
    assert healed == ("healed", ("host:8", 4, 2))
    assert done == [({"x": 1}, kept, True), "collected", "taken"]
    if runs_s < joining.CALLBACKS_S:
        assert clock.now == pytest.approx(1000.0 + runs_s, abs=0.02)


def gathering(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, ready_after_s: float, *errors: int
) -> None:
    """Have a gather that ends after some seconds, with a shard that is wrong by each number."""
    mesh = jax.make_mesh((1,), ("device",), axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("device"))

    def gather(own: jax.Array) -> Any:
        shards = [SimpleNamespace(data=np.asarray(own) + error) for error in errors]
        return SimpleNamespace(
            is_ready=lambda: clock.now >= 1000.0 + ready_after_s, addressable_shards=shards
        )

    monkeypatch.setattr(joining, "time", clock)
    monkeypatch.setattr(joining, "RunningClock", running_clock_by(clock.monotonic))
    monkeypatch.setattr(joining, "_gather", (mesh, split, gather))


def test_whether_processes_can_compute_together(monkeypatch: pytest.MonkeyPatch) -> None:
    gathering(monkeypatch, Clock(), 0.5, 0, 0)
    assert numbers_are_right(3, 1.0)
    gathering(monkeypatch, Clock(), 2.0, 0, 0)
    assert not numbers_are_right(3, 1.0)
    assert numbers_are_right(3, None)  # waits for ever
    gathering(monkeypatch, Clock(), 0.0, 0, 1)
    assert not numbers_are_right(3, 1.0)


def test_numbers_that_do_not_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            raise RuntimeError("NCCL operation failed")

    gathering(monkeypatch, Clock(), 0.0, 0)
    mesh, split, _ = joining._gather
    lost = SimpleNamespace(is_ready=lambda: True, addressable_shards=[SimpleNamespace(data=Lost())])
    monkeypatch.setattr(joining, "_gather", (mesh, split, lambda own: lost))
    with pytest.raises(RuntimeError, match=r"^NCCL operation failed$"):
        numbers_are_right(3, 1.0)


@pytest.mark.parametrize(
    ("index", "processes", "opened", "port"),
    [(0, 1, {5}, 5), (0, 2, {5}, 5), (2, 4, {5}, 5), (1, 2, set(), 0), (1, 2, {5, 6}, 0)],
)
def test_how_a_process_connects(
    index: int,
    processes: int,
    opened: set[int],
    port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[Any] = []
    listening = {1, 2}
    held = SimpleNamespace(close=lambda: done.append("let go of the port"))
    monkeypatch.setattr(joining, "_held", held)
    monkeypatch.setattr(joining, "listening_ports", lambda: set(listening))
    monkeypatch.setattr(joining, "_wait_for_listener", lambda address: done.append(address))
    monkeypatch.setattr(joining, "meet", lambda: done.append("met"))
    monkeypatch.setattr(_jax, "make_waits_interruptible", lambda: done.append("interruptible"))
    monkeypatch.setattr(jax.distributed, "initialize", lambda **options: done.append(options))
    monkeypatch.setattr(joining, "address_for_gloo", lambda address: f"a host of {address}")
    monkeypatch.setattr(_jax, "connect_directly", done.append)
    monkeypatch.setattr(jax, "devices", lambda: listening.update(opened))
    assert joining._connect("host:7", processes, index) == port
    options = {
        "coordinator_address": "host:7",
        "coordinator_bind_address": "host:7",
        "num_processes": processes,
        "process_id": index,
        "cluster_detection_method": "deactivate",
        "initialization_timeout": 14 * 24 * 3600,
        "heartbeat_timeout_seconds": 14 * 24 * 3600,
    }
    # Process 0 is the one that listens.
    waits = ["a host of host:7", *(["host:7"] if index else [])]
    meets = ["met"] if processes > 1 else []
    assert done == [*waits, options, "let go of the port", "interruptible", *meets]


@pytest.mark.parametrize(
    ("processes", "joined"),
    [(1, "process of this cluster has"), (2, "2 processes of this cluster have")],
)
def test_a_call_that_changes_nothing(
    processes: int, joined: str, capsys: pytest.CaptureFixture[str]
) -> None:
    joining._answer_initialize(processes, 0, {"num_processes": processes})
    assert capsys.readouterr().out == (
        f"jax.distributed.initialize: the {joined} joined already, so the call changes nothing\n"
    )
