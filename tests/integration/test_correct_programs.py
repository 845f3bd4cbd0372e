"""Programs that are slow or odd but correct: nobody is accused."""

from __future__ import annotations

import pytest

import mcnb
from tests.integration.test_divergences import SETUP
from tests.support.clients import HANG_S

pytestmark = pytest.mark.promise("a correct program gets no verdict")
# Has a thread that is none of Python's call a function: see timer_create(2).
NATIVE = """
import ctypes
class SigEvent(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signo", ctypes.c_int), ("notify", ctypes.c_int),
                ("function", ctypes.c_void_p), ("rest", ctypes.c_char * 64)]
def natively(seconds, function):
    global called
    called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: function())
    by_thread = SigEvent(notify=2, function=ctypes.cast(called, ctypes.c_void_p))
    timer = ctypes.c_void_p()
    assert libc.timer_create(1, ctypes.byref(by_thread), ctypes.byref(timer)) == 0
    once = (ctypes.c_long * 4)(0, 0, 0, int(seconds * 1e9))
    assert libc.timer_settime(timer, 0, ctypes.byref(once), None) == 0
libc = ctypes.CDLL(None)
"""
# The text of the last expression's value on each process, or on all.
CORRECT: dict[str, tuple[str, str | dict[int, str]]] = {
    "sleep on one": ("if k == 1: time.sleep(1.2)\nfloat(jnp.sum(x))", "496.0"),
    "busy on one": (
        "until = time.monotonic() + 1.0\nwhile k == 2 and time.monotonic() < until: pass\n"
        "float(jnp.sum(x))",
        "496.0",
    ),
    "a long compile on one": (
        "def deep(v):\n    for i in range(150): v = jnp.sin(v) @ v * (i + 1.0)\n    return v\n"
        "if k == 0: jax.jit(deep)(jnp.ones((8, 8))).block_until_ready()\nfloat(jnp.sum(x))",
        "496.0",
    ),
    "much output on one": (
        "if k == 3:\n    for i in range(20000): print(i)\nfloat(jnp.sum(x))",
        "496.0",
    ),
    "one finishes early": (
        "s = float(jnp.sum(x))\nif k: time.sleep(0.5)\ns",
        "496.0",
    ),
    "different work on disjoint meshes": (
        "v = among(0, 1) if k < 2 else among(2, 3)\n"
        "w = [float(total(v)) for _ in range(3)] if k < 2 else [float(jnp.max(v))]\nw[-1]",
        {0: "120.0", 1: "120.0", 2: "15.0", 3: "15.0"},
    ),
    "a subset alone, the others idle": (
        "v = among(1, 3)\nfloat(total(v)) if k in (1, 3) else None",
        {0: "", 1: "120.0", 2: "", 3: "120.0"},
    ),
    "pairs in any legal order": (
        "order = {0: [(0, 1), (0, 3)], 1: [(0, 1), (1, 2)],\n"
        "         2: [(1, 2), (2, 3)], 3: [(2, 3), (0, 3)]}[k]\n"
        "v = [among(*pair) for pair in order]\n[float(total(w)) for w in v][-1]",
        "120.0",
    ),
    "groups of one mesh, launched by their members only": (
        "pairs = jax.jit(jax.shard_map(lambda v: lax.psum(v, 'b'), mesh=mesh,\n"
        "    in_specs=P('a', 'b'), out_specs=P('a'), check_vma=False))\n"
        "if k == 0: pairs(x)\nif k == 2: pairs(x); pairs(x)\nk",
        {k: str(k) for k in range(4)},
    ),
    "different numbers of local launches": (
        "for i in range(5 * k): jnp.ones(3).sum()\nfloat(jnp.sum(x))",
        "496.0",
    ),
    "different order of local launches": (
        "work = [jnp.sin, jnp.cos, jnp.exp]\nfor f in work[k % 3:] + work[:k % 3]: f(jnp.ones(3))\n"
        "float(jnp.sum(x))",
        "496.0",
    ),
    "elementwise on one only": (
        "if k == 0: z = x + 1; z = z * x; z = -z\nfloat(jnp.sum(x))",
        "496.0",
    ),
    "elementwise in another order": (
        "a = (x + 1, x * 2) if k % 2 else (x * 2, x + 1)[::-1]\nfloat(jnp.sum(a[0]))",
        "528.0",
    ),
    "the same from different lines": (
        "if k < 2:\n    s = jnp.sum(x)\nelif k == 2:\n    s = jnp.sum(x)\n"
        "else:\n    s = helper(x)\nfloat(s)",
        "496.0",
    ),
    "the same under different names": (
        "def f(v): return jnp.sum(v * 2)\ndef g(v): return jnp.sum(v * 2)\n"
        "float(jax.jit(f if k else g)(x))",
        "992.0",
    ),
    "the same in other words": (
        "f = (lambda v: jnp.sum(v)) if k else (lambda u: u.sum())\nfloat(jax.jit(f)(x))",
        "496.0",
    ),
    "other names of mesh axes": (
        "names = ('a', 'b') if k else ('rows', 'columns')\nm = make((4, 2), names)\n"
        "float(total(put(np.ones((8, 4)), P(*names), m)))",
        "32.0",
    ),
    "a mesh made anew each time": (
        "s = 0\nfor _ in range(3):\n"
        "    s += float(total(put(np.ones(8), P('i'), make((8,), ('i',)))))\ns",
        "24.0",
    ),
    "a thread on all": (
        "got = []\nt = threading.Thread(target=lambda: got.append(float(jnp.sum(x))))\n"
        "t.start(); t.join(); got[0]",
        "496.0",
    ),
    "threads beside the main one": (
        "got = []\ndef run(): got.extend(float(total(x)) for _ in range(9))\n"
        "t = threading.Thread(target=run)\nt.start()\n"
        "mine = [float(meet(x)[0, 0]) for _ in range(9)]\nt.join()\n"
        "(len(got), set(got), len(set(mine)))",
        "(9, {496.0}, 1)",
    ),
    "threads started in another order": (
        "got = {}\nfs = {'sum': jnp.sum, 'max': jnp.max, 'min': jnp.min}\n"
        "ts = [threading.Thread(target=lambda n=n: got.update({n: float(fs[n](x))})) for n in fs]\n"
        "for t in ts[k % 3:] + ts[:k % 3]: t.start(); time.sleep(0.01 * k)\n"
        "for t in ts: t.join()\nsorted(got.items())",
        "[('max', 31.0), ('min', 0.0), ('sum', 496.0)]",
    ),
    "a pool": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(1) as pool:\n"
        "    s = pool.submit(lambda: float(jnp.sum(x))).result()\ns",
        "496.0",
    ),
    "a pool whose library waits before it calls": (
        "from concurrent.futures import ThreadPoolExecutor\nimport sched\n"
        "later = sched.scheduler()\ngot = []\n"
        "later.enter(0.5 * (k == 0), 1, lambda: got.append(float(total(x))))\n"
        "pool = ThreadPoolExecutor(1)\ndone = pool.submit(later.run)\n"
        "while not got: time.sleep(0.01)\ngot",
        "[496.0]",
    ),
    "a thread whose library waits before it calls": (
        "import sched\nlater = sched.scheduler()\ngot = []\n"
        "later.enter(0.5 * (k == 1), 1, lambda: got.append(float(total(x))))\n"
        "t = threading.Thread(target=later.run)\nt.start()\nt.join()\ngot",
        "[496.0]",
    ),
    "a library's function, slow before it launches": (
        "class Slow:\n    def __array__(self, *_, **__):\n"
        "        time.sleep(0.4 * (k == 2))\n        return np.ones(3)\n"
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(1) as pool:\n"
        "    v = pool.submit(mu.process_allgather, Slow()).result()\nfloat(np.sum(v))",
        "12.0",
    ),
    "a result that a thread sets later": (
        "import queue\nq = queue.Queue()\n"
        "def run():\n    time.sleep(0.3 * (k == 3))\n    q.put(float(total(x)))\n"
        "threading.Thread(target=run).start()\nq.get()",
        "496.0",
    ),
    "an event that a callback sets": (
        "e = threading.Event()\ndef slow(v):\n    time.sleep(0.4 * (k == 1))\n    e.set()\n"
        "f = jax.jit(lambda v: (jax.debug.callback(slow, v[0]), v + 1)[1])\n"
        "got = []\nt = threading.Thread(target=lambda: got.append(float(total(x))))\n"
        "f(jnp.ones(3))\nif k: t.start()\ne.wait()\nif not k: t.start()\nt.join()\ngot",
        "[496.0]",
    ),
    "an event that a timer's signal sets": (
        "import signal\ne = threading.Event()\n"
        "before = signal.signal(signal.SIGALRM, lambda *_: e.set())\n"
        "got = []\nt = threading.Thread(target=lambda: got.append(float(total(x))))\n"
        "if k != 2: t.start()\nelse: signal.setitimer(signal.ITIMER_REAL, 0.4); e.wait(); t.start()"
        "\nt.join()\nsignal.signal(signal.SIGALRM, before)\ngot",
        "[496.0]",
    ),
    "an event that native code sets": (
        NATIVE + "e = threading.Event()\nif k == 2: natively(0.6, e.set); e.wait()\n"
        "float(total(x))",
        "496.0",
    ),
    "an event loop that native code wakes": (
        NATIVE + "import asyncio\nasync def wait():\n"
        "    loop = asyncio.get_running_loop()\n    future = loop.create_future()\n"
        "    natively(0.6, lambda: loop.call_soon_threadsafe(future.set_result, None))\n"
        "    await future\nif k == 1: asyncio.run(wait())\nfloat(total(x))",
        "496.0",
    ),
    "a loop that native code wakes, beside a thread that launches": (
        NATIVE + "import asyncio\nasync def wait():\n"
        "    loop = asyncio.get_running_loop()\n    future = loop.create_future()\n"
        "    natively(0.6, lambda: loop.call_soon_threadsafe(future.set_result, None))\n"
        "    await future\ngot = []\n"
        "t = threading.Thread(target=lambda: got.append(float(total(x))))\n"
        "if k: t.start()\nif k == 1: asyncio.run(wait())\ngot.append(float(jnp.max(x)))\n"
        "if not k: t.start()\nt.join()\nsorted(got)",
        "[31.0, 496.0]",
    ),
    "the same closed-over array": (
        "c = np.random.default_rng(0).random((8, 4))\n"
        "f = lambda v: jnp.sum(v * c)\nfloat(jax.jit(f)(x)) == float(jax.jit(f)(x))",
        "True",
    ),
    "other constants in what stays here": (
        "c = np.full(64, float(k))\nv = float(jax.jit(lambda v: jnp.sum(v * c))(jnp.ones(64)))\n"
        "float(jnp.sum(x)) + v - 64 * k",
        "496.0",
    ),
    "a computation that nobody uses": (
        "f = lambda v: (jnp.sin(v) * k, jnp.sum(v))[1]\nfloat(jax.jit(f)(x))",
        "496.0",
    ),
    "a callback": (
        "seen = []\ndef see(v): seen.append(float(jnp.sin(v)))\n"
        "def f(v):\n    jax.debug.callback(see, jnp.sum(v))\n    return jnp.sum(v)\n"
        "float(jax.jit(f)(x))",
        "496.0",
    ),
    "a generator": (
        "def steps():\n    while True: yield float(jnp.sum(x))\ng = steps(); next(g); next(g)",
        "496.0",
    ),
    "in __del__ on all": (
        "got = []\nclass Closing:\n    def __del__(self): got.append(float(jnp.sum(x)))\n"
        "c = Closing(); del c; got[0]",
        "496.0",
    ),
    "garbage collected at any time": (
        "gc.set_threshold(7 + 50 * k)\ns = [float(jnp.sum(x)) for _ in range(10)]\n"
        "gc.set_threshold(700)\ns[-1]",
        "496.0",
    ),
    "an error caught on one": (
        "try:\n    if k == 2: 1 / 0\nexcept ZeroDivisionError: pass\nfloat(jnp.sum(x))",
        "496.0",
    ),
    "an error caught between, then the same": (
        "s = float(jnp.sum(x))\ntry:\n    assert k != 1\n"
        "except AssertionError: s = float(jnp.max(x))\nelse: s = float(jnp.max(x))\ns",
        "31.0",
    ),
    "finally on all": (
        "try:\n    pass\nfinally:\n    s = float(jnp.sum(x))\ns",
        "496.0",
    ),
    "other values in arrays": (
        "v = jax.make_array_from_process_local_data(NamedSharding(mesh, P('a')), np.full(2, k))\n"
        "int(jnp.sum(v))",
        "12",
    ),
    "single-device arrays assembled": (
        "parts = [jax.device_put(jnp.full((1, 1), k), d) for d in jax.local_devices()]\n"
        "v = jax.make_array_from_single_device_arrays((4, 2), NamedSharding(mesh, P('a', 'b')),"
        " parts)\nint(jnp.sum(v))",
        "12",
    ),
    "addressable shards printed by one": (
        "if k == 1: s = [np.asarray(part.data) for part in x.addressable_shards]\n"
        "float(jnp.sum(x))",
        "496.0",
    ),
    "donated arguments": (
        "f = jax.jit(lambda v: v + 1, donate_argnums=0)\nv = put(np.zeros((8, 4)), P('a', 'b'))\n"
        "for _ in range(5): v = f(v)\nfloat(jnp.sum(v))",
        "160.0",
    ),
    "pmap": (
        "f = jax.pmap(lambda v: lax.psum(v, 'i'), axis_name='i')\n"
        "float(f(np.ones((2, 1))).addressable_shards[0].data[0, 0])",
        "8.0",
    ),
    "ahead of time": (
        "f = total.lower(x).compile()\nif k == 3: time.sleep(0.3)\nfloat(f(x))",
        "496.0",
    ),
    "a loop of training": (
        "g = jax.jit(jax.value_and_grad(lambda w, x: jnp.mean((x @ w - 1) ** 2)))\n"
        "w = put(np.zeros((4, 2)), P())\n"
        "for _ in range(10): loss, d = g(w, x); w = w - 1e-4 * d\nbool(loss < 1)",
        "True",
    ),
    "many in flight": (
        "v = [jnp.sum(x + i) for i in range(50)]\nfloat(v[-1])",
        "2064.0",
    ),
    "host values put and read": (
        "v = jax.device_put(np.ones((8, 4)), NamedSharding(mesh, P('a', 'b')))\n"
        "float(mu.process_allgather(jnp.sum(v), tiled=True))",
        "32.0",
    ),
    "a barrier": (
        "for i in range(3): mu.sync_global_devices(str(i))\nk",
        {k: str(k) for k in range(4)},
    ),
    "nothing": ("None", ""),
}


@pytest.fixture(scope="module")
def ready(shared_cluster: mcnb.Cluster) -> mcnb.Cluster:
    if not shared_cluster.running:
        shared_cluster.start()
    shared_cluster.run(SETUP).raise_for_errors()
    return shared_cluster


@pytest.mark.parametrize(("source", "value"), CORRECT.values(), ids=CORRECT)
def test_a_correct_program(ready: mcnb.Cluster, source: str, value: str | dict[int, str]) -> None:
    result = ready.run(source)
    assert result.verdict is None, result.text()
    assert result.ok, result.text()
    expected = dict.fromkeys(range(4), value) if isinstance(value, str) else value
    assert {k: text or "" for k, text in result.value.items()} == expected


def test_there_are_enough() -> None:
    assert len(CORRECT) >= 35


def test_an_error_after_the_last_launch_is_only_that(ready: mcnb.Cluster) -> None:
    result = ready.run("jnp.sum(x)\nif k == 1: raise ValueError('late')")
    assert result.verdict is None
    assert str(result.error()) == "process 1 raised ValueError: late (line 2)"


def test_a_cell_for_some_on_their_own_mesh(ready: mcnb.Cluster) -> None:
    result = ready.run("v = among(0, 2)\nfloat(total(v))", processes=[0, 2])
    assert (result.verdict, result.value) == (None, {0: "120.0", 2: "120.0"})


def test_a_thread_that_outlives_its_cell(ready: mcnb.Cluster) -> None:
    # It launches while no cell runs, on one process much later than on the others.
    ready.run(
        "go, got = threading.Event(), []\n"
        "def later():\n"
        "    go.wait()\n"
        "    if k == 1: time.sleep(0.6)\n"
        "    got.append(float(jnp.sum(x)))\n"
        "t = threading.Thread(target=later); t.start()"
    ).raise_for_errors()
    assert ready.run("go.set()").verdict is None
    assert ready.run("1").verdict is None
    assert ready.run("t.join(); got[0]").text() == "[all 4] 496.0\n"


STEPS = """
step = jax.jit(lambda v: v + v.sum() * 0)
def work():
    for _ in range(60): step(x)
t = threading.Thread(target=work); t.start()"""


def test_a_thread_that_launches_while_cells_come_and_go(ready: mcnb.Cluster) -> None:
    """At the end of a cell, the thread may wait for others that are about to come."""
    ready.run(STEPS).raise_for_errors()
    results = [ready.run("k // 9") for _ in range(30)]
    assert [result.verdict for result in results] == [None] * 30
    assert ready.run("t.join()").ok


def test_two_threads_begin_with_the_same_function(ready: mcnb.Cluster) -> None:
    """JAX holds back the calls of one thread while another one's compiles and launches."""
    for _ in range(5):
        ready.run(STEPS).raise_for_errors()
        result = ready.run("for _ in range(30): y = step(x)\nt.join()", timeout=HANG_S)
        assert result.ok, result.text()


def test_a_pull_that_computes(ready: mcnb.Cluster) -> None:
    assert ready.pull("jnp.sum(x)") == dict.fromkeys(range(4), 496.0)
    with pytest.raises(mcnb.LockstepError) as parted:
        ready.pull("jnp.sum(x)", processes=[0])
    assert "processes 1-3 were not given this cell" in str(parted.value)
    # The check that a cell was run without is off for that cell only.
    assert ready.run("jnp.sum(x)", checked=False).ok
    with pytest.raises(mcnb.LockstepError) as missing:
        ready.pull("jnp.sum(x) if k else 0")
    assert str(missing.value) == (
        "missing: processes 1-3 are waiting in jit(_reduce_sum); process 0 finished the cell "
        "without reaching it. The cluster is intact; all variables are kept"
    )
    assert ready.run("float(jnp.sum(x))").text() == "[all 4] 496.0\n"
