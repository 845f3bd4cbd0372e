"""Ways to part: by order and number, by errors, where launches hide, on subsets."""

from __future__ import annotations

from tests.support.divergences import DONE, RAISED, Divergence, all_at, alone, left

ORDERS = {
    # Order and number.
    "order swapped": Divergence(
        "for f in (total, meet) if k else (meet, total):\n    f(x)",
        "mismatch",
        all_at(2),
    ),
    "order of a set": Divergence(
        "names = {0: ['sum', 'max'], 1: ['max', 'sum']}[k % 2]  # as a set may give them\n"
        "for name in names:\n    getattr(jnp, name)(x)",
        "mismatch",
        all_at(3),
        says=(
            "because `names` depends on a value that differs between processes: `names = {0: "
            "['sum', 'max'], 1: ['max', 'sum']}[k % 2]` (line 1). Hint: "
            "the order of launches must not depend on the process. If it comes from a set or from "
            "a directory listing, sort ",
        ),
    ),
    "order by a function": Divergence(
        "names = ['max', 'sum', 'min']\nnames.sort(key=lambda n: n == ('max', 'sum')[k % 2])\n"
        "for name in names:\n    getattr(jnp, name)(x)",
        "mismatch",
        all_at(4),
        says=(
            "because `names` depends on a value that differs between processes: "
            "`names.sort(key=lambda n: n == ('max', 'sum')[k % 2])` (line 2). Hint: the order of ",
        ),
    ),
    "order of a dictionary": Divergence(
        "parts = {'a': x, 'b': put(np.ones((8, 8)), P('a', 'b'))}\n"
        "if k == 2: parts = dict(reversed(parts.items()))\n"
        "for part in parts.values():\n    jnp.sum(part)",
        "mismatch",
        all_at(4),
        says=(
            "Hint: the loop `for part in parts.values():` may take its elements in another order "
            "on other processes: then, sort them before looping over them. Otherwise, all "
            "processes must pass the same global shape. Pad to a common length",
        ),
    ),
    "branches on one line": Divergence(
        "y = jnp.sum(x) if k else jnp.max(x)",
        "mismatch",
        all_at(1),
        says=("the processes took different branches of `k`. Every participant",),
    ),
    "function that depends on the process": Divergence(
        "f = jnp.sum if k else jnp.max\ny = f(x)",
        "mismatch",
        all_at(2),
        says=(
            "Likely cause: `f`",
            "Hint: make this value the same on all processes. If it is meant to differ, move ",
        ),
    ),
    "branches of a condition": Divergence(
        "if k == 0:\n    y = jnp.sum(x)\nelse:\n    y = jnp.max(x)",
        "mismatch",
        all_at(2, 4, 4, 4),
        says=("the processes took different branches of `k == 0` (line 1). Every participant",),
    ),
    "extra launch": Divergence(
        "if k == 1:\n    jnp.max(x)\njnp.sum(x)",
        "mismatch",
        all_at(3, 2, 3, 3),
        says=("process 1 is waiting in max f32",),
    ),
    "missing launch": Divergence(
        "if k != 1:\n    jnp.max(x)\njnp.sum(x)", "mismatch", all_at(2, 3, 2, 2)
    ),
    "last batch": Divergence(
        "batches = range(3 + (k == 0))\nfor _ in batches:\n    jnp.sum(x)",
        "missing",
        **alone(0, 3),
        says=(
            "the loop `for _ in batches:` ran a different number of times on different processes",
        ),
    ),
    "a loop left early": Divergence(
        "for i in range(4):\n    if i == 2 and k == 3: break\n    jnp.sum(x)",
        "missing",
        **left(3, 3),
    ),
    "while loop on own data": Divergence(
        "n = 0\nwhile n < 2 + (k == 1):\n    n += 1\n    meet(x)", "missing", **alone(1, 4)
    ),
    "early return": Divergence(
        "def step(v):\n    if k == 2:\n        return None\n    return jnp.sum(v)\nstep(x)",
        "missing",
        **left(2, 4),
        says=(
            "Hint: other processes return before this line, which runs only if `k == 2` "
            "(line 2) is false. A collective must run on every participating process: return only "
            "after it",
        ),
    ),
    "condition in a helper": Divergence(
        "def first(loud):\n    return loud and jax.process_index() == 0\n"
        "if first(True):\n    jnp.sum(x)",
        "missing",
        **alone(0, 4),
        says=(
            "Hint: this line runs only if `first(True)`, which depends on the process (line 2). ",
        ),
    ),
    "condition of a caller": Divergence(
        "def save(v):\n    for _ in range(2):\n        jnp.sum(v)\nsave(x)\nif k == 0:\n"
        "    save(x)",
        "missing",
        **alone(0, 3),
        says=("Hint: line 6, which leads to this line, runs only if `k == 0`. ",),
    ),
    "condition as an argument": Divergence(
        "def save(v, leader):\n    if leader:\n        return jnp.sum(v)\nsave(x, k == 1)",
        "missing",
        **alone(1, 3),
        says=("Hint: this line runs only if `leader`. ",),
    ),
    "one launch more, which meets the next": Divergence(
        "def mean(v):\n    return total(v)\nmean(x)\nif k == 0:\n    mean(x)\n"
        "for _ in range(3):\n    mean(x)\nmeet(x)",
        "mismatch",
        all_at(2, 8, 8, 8),
        says=(
            "What came before: the 2nd launch of jit(sum) came from different lines: "
            "line 5 on process 0; line 7 on processes 1-3. Since then, these processes may have "
            "been in different steps of the program, and results may be wrong. Hint: line 5 "
            "runs only if `k == 0`. ",
        ),
    ),
    "one launch less, and the process ends first": Divergence(
        "def mean(v):\n    return total(v)\nif k != 2:\n    mean(x)\nfor _ in range(3):\n"
        "    mean(x)",
        "missing",
        **left(2, 2),
        says=(
            "came from different lines: line 4 on processes 0,1,3; line 6 on process 2. Since "
            "then, these processes may have been in different steps of the program, and results "
            "may be wrong. Hint: line 4 runs only if `k != 2`. ",
        ),
    ),
    "loops in loops": Divergence(
        "def epoch(n):\n    for _ in range(n):\n        jnp.sum(x)\nfor _ in range(2):\n"
        "    epoch(2 + (k == 3))",
        "missing",
        **alone(3, 3),
        says=(
            "Hint: one of the loops `for _ in range(2):`, `for _ in range(n):` ran a different "
            "number of times on different processes. ",
        ),
    ),
    "a loop of a library": Divergence(
        "for _ in range(2):\n    list(map(jnp.sum, [x] * (2 + (k == 3))))",
        "missing",
        **alone(3, 2),
    ),
    "padded to its own length": Divergence(
        "longest = 4 + 4 * (k % 2)\nbatch = put(np.ones((8, longest)), P('a', 'b'))\n"
        "jnp.sum(batch)",
        "mismatch",
        all_at(3),
        says=("Pad to a common length",),
    ),
    "gathered in other sizes": Divergence(
        "mu.process_allgather(np.ones(3 + (k == 1)))",
        "mismatch",
        all_at(1),
        says=("process_allgather", "the shape of argument"),
    ),
    "a step skipped": Divergence(
        "g = jax.jit(jax.grad(lambda w, x: jnp.sum((x @ w) ** 2)))\n"
        "w = put(np.ones((4, 2)), P())\n"
        "for i in range(3):\n    if i == 1 and k == 0: continue\n    w = w - 0.1 * g(w, x)",
        "missing",
        **left(0, 5),
    ),
    # Errors.
    "error before": Divergence(
        "if k == 1: raise ValueError('mine')\njnp.sum(x)",
        "missing",
        **left(1, 2, RAISED),
        says=("process 1 raised ValueError: mine (line 1). Processes 0,2,3 waited at line 2",),
    ),
    "error between": Divergence(
        "jnp.sum(x)\nif k == 0: 1 / 0\njnp.max(x)", "missing", **left(0, 3, RAISED)
    ),
    "errors on all but one": Divergence(
        "if k < 3:\n    raise KeyError(k)\nmeet(x)",
        "missing",
        {3: 3},
        dict.fromkeys(range(3), RAISED),
        ("Process 3 waited at line 3",),
    ),
    "error caught, launch skipped": Divergence(
        "try:\n    if k == 2: 1 / 0\n    jnp.sum(x)\nexcept ZeroDivisionError:\n    pass",
        "missing",
        **left(2, 3),
    ),
    "SystemExit": Divergence(
        "import sys\nif k == 3: sys.exit(1)\njnp.sum(x)", "missing", **left(3, 3, RAISED)
    ),
    "KeyboardInterrupt": Divergence(
        "if k == 3: raise KeyboardInterrupt\njnp.sum(x)", "missing", **left(3, 2, RAISED)
    ),
    "StopIteration of one's own data": Divergence(
        "data = iter(range(2 + (k > 0)))\nfor _ in range(3):\n    next(data); jnp.sum(x)",
        "missing",
        **left(0, 3, RAISED),
    ),
    "collective in finally": Divergence(
        "try:\n    if k == 0: 1 / 0\n    jnp.max(x)\nfinally:\n    jnp.sum(x)",
        "mismatch",
        all_at(5, 3, 3, 3),
        says=(
            "process 0 is waiting in sum f32[8,4], line 5, while handling ZeroDivisionError: "
            "division by zero (line 2); ",
            "Hint: an exception led to another launch than on the other processes.",
        ),
    ),
    "collective in a clause for an error of a function": Divergence(
        "def load(): return {}['rows']\n"
        "try:\n    n = load() if k == 3 else 1\nexcept LookupError:\n    jnp.max(x)\njnp.sum(x)",
        "mismatch",
        all_at(6, 6, 6, 5),
        says=(
            "process 3 is waiting in max f32[8,4], line 5, while handling KeyError: 'rows' (line",
        ),
    ),
    "collective after an error that was handled": Divergence(
        "try:\n    if k == 0: 1 / 0\nexcept ZeroDivisionError:\n    pass\n"
        "jnp.sum(x) if k else jnp.max(x)",
        "mismatch",
        all_at(5),
        says=("process 0 is waiting in max f32[8,4], line 5; processes 1-3 are",),
    ),
    "the verdict swallowed": Divergence(
        "try:\n    if k == 0: jnp.max(x)\nexcept Exception:\n    pass\njnp.sum(x)",
        "mismatch",
        all_at(2, 5, 5, 5),
    ),
    # Where launches hide.
    "in a thread": Divergence(
        "t = threading.Thread(target=lambda: jnp.sum(x))\nif k == 0: t.start(); t.join()",
        "missing",
        **alone(0, 1),
    ),
    "in threads that differ": Divergence(
        "f = total if k else meet\nt = threading.Thread(target=lambda: f(x))\nt.start(); t.join()",
        "mismatch",
        all_at(2),
    ),
    "in a pool": Divergence(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(1) as pool:\n    if k: pool.submit(jnp.sum, x)",
        "missing",
        {},
        {0: DONE},
    ),
    "in a pool, its result waited for": Divergence(
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(1) as pool:\n"
        "    pool.submit(lambda: (total if k == 0 else meet)(x)).result()",
        "mismatch",
        all_at(3),
    ),
    "in a thread, a queue waited for": Divergence(
        "import queue\nq = queue.Queue()\n"
        "threading.Thread(target=lambda: q.put((total if k else meet)(x)), daemon=True).start()\n"
        "q.get()",
        "mismatch",
        all_at(3),
    ),
    "in a thread, an event waited for": Divergence(
        "e = threading.Event()\n"
        "def run():\n    (total if k else meet)(x)\n    e.set()\n"
        "threading.Thread(target=run, daemon=True).start()\ne.wait()",
        "mismatch",
        all_at(3),
    ),
    "in an executor of asyncio": Divergence(
        "import asyncio\nasync def run():\n"
        "    call = lambda: (total if k else meet)(x)\n"
        "    return await asyncio.get_running_loop().run_in_executor(None, call)\n"
        "asyncio.run(run())",
        "mismatch",
        all_at(3),
    ),
    "one finishes, the others' pools wait": Divergence(
        "from concurrent.futures import ThreadPoolExecutor\nif k != 1:\n"
        "    with ThreadPoolExecutor(2) as pool: list(pool.map(lambda _: total(x), [0]))",
        "missing",
        **left(1, 3),
    ),
    "in a callback": Divergence(
        "def ask(v):\n    if k == 0: jnp.sum(x)\n    return v\n"
        "s = jax.ShapeDtypeStruct((), np.float32)\n"
        "local = jax.jit(lambda v: jax.pure_callback(ask, s, v))\nlocal(jnp.float32(1))"
        ".block_until_ready()",
        "missing",
        **alone(0, 2),
    ),
    "in a generator": Divergence(
        "def steps():\n    while True:\n        yield jnp.sum(x)\n"
        "g = steps()\nfor _ in range(2 + (k == 1)):\n    next(g)",
        "missing",
        **alone(1, 3),
    ),
    "in __del__": Divergence(
        "class Closing:\n    def __del__(self):\n        jnp.sum(x)\n"
        "c = Closing()\nif k == 2:\n    del c\n    time.sleep(0)\nelse: kept = c",
        "missing",
        **alone(2, 3),
    ),
    "in a function of an earlier cell": Divergence(
        "\n\nif k == 0:\n    helper(x)", "missing", **alone(0, 4)
    ),
    "awaited": Divergence(
        "async def f():\n    return jnp.sum(x)\nif k == 1:\n    await f()",
        "missing",
        **alone(1, 2),
    ),
    # Subsets.
    "three in a ring": Divergence(
        "order = {0: [(0, 1), (0, 2)], 1: [(1, 2), (0, 1)], 2: [(0, 2), (1, 2)], 3: []}[k]\n"
        "v = {pair: among(*pair) for pair in order}\n"
        "for pair in order:\n    total(v[pair])",
        "cycle",
        {0: 4, 1: 4, 2: 4},
        says=(
            "process 0 waits for process 1, process 1 for process 2, and process 2 for process 0",
            "Sort the collectives by the processes that take part",
        ),
    ),
    "four in a ring": Divergence(
        "pairs = [(k, (k + 1) % 4), ((k - 1) % 4, k)]\n"
        "v = {tuple(sorted(pair)): among(*sorted(pair)) for pair in pairs}\n"
        "for pair in v:\n    total(v[pair])",
        "cycle",
        all_at(4),
    ),
    "rows first, columns first": Divergence(
        "rows, columns = [(0, 1), (2, 3)], [(0, 2), (1, 3)]\n"
        "order = rows + columns if k in (0, 3) else columns + rows\n"
        "v = [among(*pair) for pair in order]\n"
        "for w in v:\n    if w is not None: total(w)",
        "cycle",
        all_at(5),
    ),
    "one of a subset is missing": Divergence(
        "v = among(1, 2)\nif k == 1:\n    total(v)", "missing", {1: 3}, {2: DONE}
    ),
    "a subset against all": Divergence(
        "v = among(2, 3)\nif k == 3:\n    total(v)\ntotal(x)",
        "mismatch",
        all_at(4, 4, 4, 3),
        says=("process 3 is waiting in jit(sum) f32[16], line 3",),
    ),
    "not invited": Divergence(
        "jnp.sum(x)",
        "not invited",
        {0: 1, 1: 1},
        {2: "not invited", 3: "not invited"},
        ("processes 2,3 were not given this cell",),
        processes="0,1",
    ),
    "one is late": Divergence(
        "if k == 3: time.sleep(0.7)\nelse: jnp.sum(x)", "missing", **left(3, 2), sleeps=0.7
    ),
}
