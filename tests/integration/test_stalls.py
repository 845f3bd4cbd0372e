"""What hangs where no check can see it: a time limit or Ctrl-C ends it, and heals."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

import mcnb
from mcnb.cluster.workers import Pending
from tests.conftest import wait_until
from tests.support.healing import ENDED_S, assert_same
from tests.support.stopping import HUNG_S, limit_from
from tests.support.timing import shortest, since

pytestmark = pytest.mark.thorough("waits for what no check can see")

STALLS = {
    "inside one program": (
        "f = jax.jit(jax.shard_map(lambda v: lax.cond(lax.axis_index('a') == 0,\n"
        "    lambda u: lax.psum(u, 'a'), lambda u: u, v),\n"
        "    mesh=mesh, in_specs=P('a', 'b'), out_specs=P('a', 'b'), check_vma=False))\n"
        "print('running', flush=True)\n"
        "np.asarray(f(x).addressable_shards[0].data)"
    ),
    "inside one program, between two devices of a process": (
        "f = jax.jit(jax.shard_map(lambda v: lax.cond(lax.axis_index('b') == 0,\n"
        "    lambda u: lax.psum(u, 'b'), lambda u: u, v),\n"
        "    mesh=mesh, in_specs=P('a', 'b'), out_specs=P('a', 'b'), check_vma=False))\n"
        "print('running', flush=True)\n"
        "np.asarray(f(x).addressable_shards[0].data)"
    ),
    "a key of the coordination service": (
        "from jax._src import distributed\n"
        "print('running', flush=True)\n"
        "distributed.global_state.client.blocking_key_value_get(f'{k} {os.urandom(4)}', 60000)"
    ),
    "a callback": (
        "import time\n"
        "def never(v):\n"
        "    while True: time.sleep(0.05)\n"
        "print('running', flush=True)\n"
        "shape = jax.ShapeDtypeStruct((), np.float32)\n"
        "print(jax.jit(lambda v: jax.pure_callback(never, shape, jnp.sum(v)))(x))"
    ),
}


@pytest.mark.parametrize("stall", STALLS.values(), ids=STALLS)
def test_a_time_limit_ends_what_no_check_can_see(prepared: mcnb.Cluster, stall: str) -> None:
    def attempt() -> float:
        began = time.monotonic()
        result = prepared.run(stall, timeout=1)
        took = since(began)
        assert result.verdict is not None
        assert result.verdict.kind == "stalled"
        error = result.error()
        assert type(error) is mcnb.CellError
        assert str(error).startswith("stalled: ")
        assert "at the time limit of 1 s" in str(error)
        assert_same(prepared)
        return took

    assert shortest(1 + ENDED_S, attempt) < 1 + ENDED_S


@pytest.mark.parametrize("stall", STALLS.values(), ids=STALLS)
def test_ctrl_c_ends_what_no_check_can_see(prepared: mcnb.Cluster, stall: str) -> None:
    pressed: list[float] = []

    def press(word: str) -> None:
        processes = prepared._lifetime.processes
        assert processes is not None
        if wait_until(lambda: all(word in processes.last_words(k).said for k in range(4)), HUNG_S):
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

    def attempt() -> float:
        word = f"running {len(pressed)}"
        thread = threading.Thread(target=press, args=(word,))
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            prepared.run(stall.replace("running", word))
        took = since(pressed[-1])
        thread.join()
        assert_same(prepared)
        return took

    assert shortest(ENDED_S, attempt) < ENDED_S


@pytest.mark.promise("--timeout")
def test_a_time_limit_for_python(prepared: mcnb.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_seen(pending: Pending) -> bool:
        lines = [pending.progress(k).line for k in range(4)]
        return lines == [4, 3, 4, 4] and set(pending.waits) == {0, 2, 3}

    limit_from(monkeypatch, all_seen)
    result = prepared.run("import time\nif k == 1:\n    time.sleep(600)\njnp.sum(x)", timeout=0.5)
    assert str(result.error()) == (
        "stalled: processes 0,2,3 were waiting in sum, line 4; process 1 was at line 3. Hint: "
        "process 1 kept processes 0,2,3 waiting. If the code only needs more time, use a larger "
        "--timeout. All 4 processes (lines 3, 4) were interrupted at the time limit of 0.5 s. "
        "The cluster is intact; all variables are kept"
    )
    assert_same(prepared)
