"""Programs whose replicated arguments are not equal: the process, the argument and the index."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import mcnb
from mcnb.lockstep import server
from tests.integration.test_divergences import NEXT, SETUP
from tests.integration.test_run import BEGIN, at_line, run, told

VALUES = """
dot = jax.jit(lambda v, params: jax.tree.map(lambda w: jnp.sum(v @ w), params))
def replicated(v, spec=P(), on=mesh):
    return jax.make_array_from_callback(v.shape, NamedSharding(on, spec), lambda i: v[i])
ones = np.ones((4, 3), np.float32)
"""
HINT = (
    "Hint: a replicated argument must be equal on all processes; otherwise the results are wrong, "
    "without an error. Compute it from the same seed or file on every process, or send it from "
    "process 0 to the others: jax.experimental.multihost_utils.broadcast_one_to_all"
)
ON_SOME = (
    "Hint: what several processes hold of an argument must be equal on all of them; otherwise the "
    "results are wrong, without an error. Compute it from the same seed or file on each of them"
)
SAME_SEED = "Make the key from the same seed on every process"
LED = "Likely cause: {} depends on a value that differs between processes: `{}` ({}). "
UNDER = LED.replace("a value", "a condition")


@pytest.fixture
def values_cluster(shared_cluster: mcnb.Cluster) -> mcnb.Cluster:
    if not shared_cluster.running:
        shared_cluster.start()
    shared_cluster.run(SETUP + VALUES).raise_for_errors()
    return shared_cluster


def goes_on(cluster: mcnb.Cluster) -> bool:
    return cluster.run(NEXT).text() == "[all 4] 500.0\n"


# The cell, what differs, the line of the launch, that where the argument begins to differ, and what
# the line passes.
DIFFERENT: dict[str, tuple[str, str, int, int, str]] = {
    "one element of a NumPy array": (
        "w = ones.copy()\nif k == 2: w[1, 2] = 7\ndot(x, {'w': w, 'b': ones})",
        "the value of argument params['w'] at [1, 2]: 1.0 on processes 0,1,3; 7.0 on process 2",
        3,
        2,
        "{'w': w, 'b': ones}",
    ),
    "memory that nobody has set, as np.empty leaves it": (
        "buffer = replicated(np.full((4, 3), k + 0.5, np.float32))\ndot(x, [buffer])",
        "the value of argument params[0] at [0, 0]: 0.5 on process 0; 1.5 on process 1; 2.5 on "
        "process 2; 3.5 on process 3",
        2,
        1,
        "[buffer]",
    ),
    "nested parameters": (
        "params = {'layers': [{'w': ones}, {'w': ones + (k == 1), 'b': ones}]}\ndot(x, params)",
        "the value of argument params['layers'][1]['w'] at [0, 0]: 1.0 on processes 0,2,3; 2.0 on "
        "process 1",
        2,
        1,
        "params",
    ),
    "replicated along one axis of the mesh": (
        "v = np.arange(32.0).reshape(4, 8)\nif k == 3: v[3, 5] = -1\n"
        "dot(x, [replicated(v, P(None, 'b'))])",
        "the value of argument params[0] at [3, 5]: 29.0 on processes 0-2; -1.0 on process 3",
        3,
        2,
        "[replicated(v, P(None, 'b'))]",
    ),
    "between two processes": (
        "if k in (1, 3):\n    w = replicated(np.full(5, k), on=of(1, 3))\n"
        "    jax.jit(lambda v, w: jnp.sum(v) * w)(among(1, 3), w)",
        "the value of argument w at [0]: 1 on process 1; 3 on process 3",
        3,
        2,
        "",
    ),
    "parts that two processes hold each": (
        "halves = jax.make_mesh((2, 4), ('c', 'd'), axis_types=mesh.axis_types)\n"
        "own = np.full((2, 3), k // 2 + 0.25 * (k == 3), np.float32)\n"
        "half = jax.make_array_from_process_local_data(NamedSharding(halves, P('c')), own)\n"
        "dot(jax.device_put(np.ones((8, 4)), NamedSharding(halves, P('c'))), [half])",
        "the value of argument params[0] at [2, 0]: 1.0 on process 2; 1.25 on process 3",
        4,
        2,
        "",
    ),
    "a number": (
        "jax.jit(lambda v, rate: jnp.sum(v) * rate)(x, 0.1 + (k == 0))",
        "the value of argument rate: 1.1 on process 0; 0.1 on processes 1-3",
        1,
        1,
        "0.1 + (k == 0)",
    ),
    "a flag": (
        "jax.jit(lambda v, on: jnp.where(on, jnp.sum(v), 0))(x, k != 3)",
        "the value of argument on: True on processes 0-2; False on process 3",
        1,
        1,
        "k != 3",
    ),
    "a random key": (
        "key = jax.random.key(k // 2)\n"
        "jax.jit(lambda key, v: jnp.sum(v + jax.random.normal(key, v.shape)))(key, x)",
        "the value of argument key: [0 0] on processes 0,1; [0 1] on processes 2,3",
        2,
        1,
        "",
    ),
    "bfloat16": (
        "w = jnp.full((4, 3), 1 + (k == 1), jnp.bfloat16)\ndot(x, [w])",
        "the value of argument params[0] at [0, 0]: 1 on processes 0,2,3; 2 on process 1",
        2,
        1,
        "[w]",
    ),
    "an array of this process alone": (
        "w = jnp.asarray(ones).at[2, 0].set(k)\ndot(x, [w])",
        "the value of argument params[0] at [2, 0]: 0.0 on process 0; 1.0 on process 1; 2.0 on "
        "process 2; 3.0 on process 3",
        2,
        1,
        "[w]",
    ),
    "compiled ahead of time": (
        "step = dot.lower(x, [replicated(ones)]).compile()\nw = ones + (k == 2)\n"
        "step(x, [replicated(w)])",
        "the value of argument 1 at [0, 0]: 1.0 on processes 0,1,3; 2.0 on process 2",
        3,
        2,
        "",
    ),
    "not a number on one": (
        "w = ones.copy()\nif k == 1: w[3, 1] = np.nan\ndot(x, [w])",
        "the value of argument params[0] at [3, 1]: 1.0 on processes 0,2,3; nan on process 1",
        3,
        2,
        "[w]",
    ),
}


@pytest.mark.parametrize(
    ("source", "differs", "line", "origin", "sent"), DIFFERENT.values(), ids=DIFFERENT
)
@pytest.mark.promise("replicated values are compared")
def test_a_replicated_argument_that_is_not_equal(
    values_cluster: mcnb.Cluster, source: str, differs: str, line: int, origin: int, sent: str
) -> None:
    result = values_cluster.run(source)
    assert result.verdict is not None, result.text()
    assert result.verdict.kind == "mismatch"
    assert {state.line for state in result.verdict.states.values()} == {line}
    name = re.split(r"[\[: ]", differs.removeprefix("the value of argument "))[0]
    called = "[replicated(w)]" if name == "1" else name
    led, cause = LED, source.splitlines()[origin - 1].strip()
    if cause.startswith("if "):
        led = UNDER
    led = led.format(f"`{called}`", cause, f"line {origin}")
    hint = f"{HINT}({sent})" if sent else HINT
    if name == "key":
        hint = f"{HINT.partition('Compute it')[0]}{SAME_SEED}"
    elif "among" in source or "halves" in source:
        hint = ON_SOME
    assert str(result.error()).endswith(
        f". What differs: {differs}. {led}{hint}. The cluster is intact; all variables are kept"
    )
    assert goes_on(values_cluster)


def test_the_whole_verdict(values_cluster: mcnb.Cluster) -> None:
    result = values_cluster.run("w = ones * 2\nif k == 3:\n    w[0, 1] = 3\ndot(x, [w])")
    assert result.text() == (
        "LockstepError: Processes diverged: a replicated argument differs\n"
        "\n"
        "[all 4] are about to launch jit(<lambda>) f32[8,4] f32[4,3], line 4\n"
        "        ----> 4 dot(x, [w])\n"
        "\n"
        "What differs: the value of argument params[0] at [0, 1]: 2.0 on processes 0-2; 3.0 on "
        f"process 3\n{UNDER.format('`params`', 'if k == 3:', 'line 2').rstrip('. ')}\n{HINT}([w])\n"
        "The cluster is intact; all variables are kept\n"
    )


def test_an_initialisation_without_a_seed(values_cluster: mcnb.Cluster) -> None:
    # As before Keras seeded the initialisers of all processes alike: keras-team/keras, pull 21261.
    result = values_cluster.run(
        "w = np.random.default_rng().normal(size=(4, 3)).astype(np.float32)\nprint(w[0, 0])\n"
        "dot(x, {'kernel': w})"
    )
    drawn = "; ".join(f"{result.stdout[k].strip()} on process {k}" for k in range(4))
    assert f"the value of argument params['kernel'] at [0, 0]: {drawn}" in str(result.error())


def test_a_file_that_differs_on_one_host(values_cluster: mcnb.Cluster, tmp_path: Path) -> None:
    weights = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.save(tmp_path / "old.npy", weights)
    weights[3, 1] += 1e-2
    np.save(tmp_path / "new.npy", weights)
    values_cluster.push({"folder": str(tmp_path)})
    result = values_cluster.run(
        "w = np.load(f'{folder}/{\"old\" if k == 2 else \"new\"}.npy')\ndot(x, {'w': w})"
    )
    assert (
        "the value of argument params['w'] at [3, 1]: 10.01 on processes 0,1,3; 10.0 on process 2"
    ) in str(result.error())


def test_jax_itself_compares_what_device_put_replicates(values_cluster: mcnb.Cluster) -> None:
    # sgl-project/sglang-jax, pull 155: an array of np.empty
    result = values_cluster.run("jax.device_put(np.full(3, k), NamedSharding(mesh, P()))")
    assert {error.name for error in result.errors.values()} == {"AssertionError"}
    assert goes_on(values_cluster)


SAME = {
    "equal values of other types": "dot(x, [ones.astype(np.float64) if k else ones])",
    "rounding": "dot(x, [ones * np.float32(1 + 1e-6 * (k == 1))])",
    "0 and -0": "dot(x, [ones * (0.0 if k else -0.0)])",
    "not a number on all": "dot(x, [ones * np.nan])",
    "replicated in groups that differ": (
        "w = np.full(4, float(k // 2))\n"
        "on = of(0, 1) if k < 2 else of(2, 3)\n"
        "jax.jit(lambda v, w: jnp.sum(v) + w[0])(put(np.arange(16.0), P(('a', 'b')), on), w)"
    ),
    "an argument that is not used": "jax.jit(lambda v, w: jnp.sum(v), keep_unused=False)(x, k)",
    "no launch of others": "jax.jit(lambda v, w: v + w)(x, k)",
    "sharded over all devices": "dot(put(np.arange(32.0).reshape(8, 4), P(('a', 'b'))), [ones])",
    "donated": (
        "give = jax.jit(lambda w, v: w + jnp.sum(v), donate_argnums=0)\nw = replicated(ones)\n"
        "for _ in range(3): w = give(w, x)"
    ),
    "of no elements": "jax.jit(lambda v, w: jnp.sum(v) + jnp.sum(w))(x, np.zeros((0, 3)))",
    "large": "jax.jit(lambda v, w: jnp.sum(v) + jnp.sum(w))(x, np.zeros(3_000_000, np.float32))",
}


@pytest.mark.parametrize("source", SAME.values(), ids=SAME)
def test_what_is_equal_passes(values_cluster: mcnb.Cluster, source: str) -> None:
    values_cluster.run(source).raise_for_errors()


@pytest.mark.parametrize("values", [True, None, False])
def test_every_launch_is_compared_on_request(
    values_cluster: mcnb.Cluster, values: bool | None
) -> None:
    values_cluster.run("for i in range(5): dot(x, [ones])").raise_for_errors()
    source = "for i in range(5):\n    w = ones + 1e-6 * (i == 3) * (k == 1)\n    dot(x, [w])\ni"
    result = values_cluster.run(source, values=values)
    if values:
        differs = "params[0] at [0, 0]: 1.0 on processes 0,2,3; 1.000001 on process 1"
        assert f"What differs: the value of argument {differs}" in str(result.error())
        assert result.verdict is not None
        assert result.verdict.states[0].launches == 3
    else:
        assert result.text() == "[all 4] 4\n"
    assert goes_on(values_cluster)


def test_a_first_launch_is_not_compared_on_request(values_cluster: mcnb.Cluster) -> None:
    result = values_cluster.run("jax.jit(lambda v, n: jnp.sum(v) * n)(x, k).shape", values=False)
    assert result.text() == "[all 4] ()\n"


def test_a_pull_compares_as_the_cell_before_it(values_cluster: mcnb.Cluster) -> None:
    source = "jax.jit(lambda v, n: jnp.sum(v) * n)(x, k).shape"
    values_cluster.run("None", values=False).raise_for_errors()
    assert values_cluster.pull(source) == dict.fromkeys(range(4), ())
    values_cluster.run("None", values=True).raise_for_errors()
    with pytest.raises(mcnb.CellError, match="the value of argument n: 0 on process 0; 1 on"):
        values_cluster.pull(source)
    assert goes_on(values_cluster)


def test_later_launches_are_sampled(
    values_cluster: mcnb.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SAMPLED_S", 0.0)
    monkeypatch.setattr(server, "SAMPLED_SHARE", 1e9)
    values_cluster.run("for i in range(5): dot(x, [ones])").raise_for_errors()  # from native code
    result = values_cluster.run(
        "for i in range(50):\n    w = ones + (i >= 20) * (k == 1)\n    dot(x, [w])"
    )
    assert result.verdict is not None
    assert result.verdict.states[0].launches in (20, 21)  # one launch asks for the next
    assert "What differs: the value of argument params[0] at [0, 0]" in str(result.error())
    assert goes_on(values_cluster)


def test_threads_may_launch_while_others_are_sampled(
    values_cluster: mcnb.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SAMPLED_S", 0.0)
    monkeypatch.setattr(server, "SAMPLED_SHARE", 1e9)
    result = values_cluster.run(
        "fs = [jax.jit(lambda v, w, n=n: jnp.sum(v) * w + n) for n in range(3)]\n"
        "got = {}\ndef run(n):\n    for i in range(100): got[n] = float(fs[n](x, 1.0))\n"
        "ts = [threading.Thread(target=run, args=(n,)) for n in range(3)]\n"
        "for t in ts: t.start()\nfor t in ts: t.join()\nsorted(got.items())"
    )
    assert result.ok
    assert result.verdict is None
    # There may be a note that the threads' launches came in different orders.
    assert {*result.value.values()} == {"[(0, 496.0), (1, 497.0), (2, 498.0)]"}


WEIGHT = "w = 1.0 + (i == 2) * 1e-6 * k"
PROGRAM = (
    f"{BEGIN}f = jax.jit(lambda v, w: jnp.sum(v) * w)\nfor i in range(4):\n"
    f"    {WEIGHT}\n    f(x, w)\nprint('done')\n"
)
LINE = PROGRAM[: PROGRAM.index("    f(x")].count("\n") + 1


@pytest.mark.promise("mcnb run --values")
def test_a_script_whose_values_are_compared(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, PROGRAM, "train.py", "-n", "2", "-d", "1", "--values")
    assert (code, out) == (1, [])
    led = LED.format("`w`", WEIGHT, f"train.py:{LINE - 1}").removesuffix(". ")
    assert told(err) == (
        "Processes diverged: a replicated argument differs\n\n[all 2] are "
        f"about to launch jit(<lambda>) f32[12] f32[], train.py:{LINE}, for the 3rd time\n"
        f"{at_line(PROGRAM, LINE, 7)}\n"
        "What differs: the value of argument w: 1.0 on process 0; 1.000001 on process 1\n"
        f"{led}\n{HINT}(w)"
    )


@pytest.mark.parametrize("words", [[], ["--no-values"]])
def test_a_script_whose_values_are_compared_at_first(tmp_path: Path, words: list[str]) -> None:
    program = PROGRAM.replace("(i == 2)", "(i == 0) * 1e6" if words else "(i == 2)")
    code, out, err = run(tmp_path, program, "train.py", "-n", "2", "-d", "1", *words)
    assert (code, out, err) == (0, ["[0] done", "[1] done"], [])


TAKEN = (
    "JAX takes the value as equal on all processes, and this launch does not communicate, so each "
    "process made its part of the result from its own value. "
)
BROADCAST = "Use the value of one process: multihost_utils.broadcast_one_to_all"
INIT = """
def init(key):
    return jax.random.normal(key, (8, 4))
make = jax.jit(init, out_shardings=NamedSharding(mesh, P(("a", "b"))))
whole = jax.jit(init, out_shardings=NamedSharding(mesh, P()))
def half(params):
    return jax.tree.map(lambda w: w / 2, params)
y = put(np.ones((8, 4), np.float32), P("a", "b"))
"""
# The cell, what it passes to which launch at which line, and the mend. None of the
# launches communicates.
UNEQUAL = {
    "an initialisation from a key of each process's own": (
        "w = make(jax.random.key(k // 3))",
        "Processes 0-2 passed key = [0 0] to jit(init), line 1, and process 3 passed [0 1]",
        SAME_SEED,
    ),
    "a number": (
        "z = y * (2.0 + (k == 1))",
        "Processes 0,2,3 passed `2.0 + (k == 1)` = 2.0 to jit(multiply), line 1, and process 1 "
        "passed 3.0",
        f"{BROADCAST}(2.0 + (k == 1))",
    ),
    "an array of which each process takes another part": (
        "z = y + jnp.zeros((8, 4)).at[3, 1].set(k)",
        "Process 0 passed `jnp.zeros((8, 4)).at[3, 1].set(k)`[3, 1] = 0.0 to jit(add), line 1, "
        "process 1 passed 1.0, process 2 passed 2.0, and process 3 passed 3.0",
        f"{BROADCAST}(jnp.zeros((8, 4)).at[3, 1].set(k))",
    ),
    "a leaf of a PyTree, in a loop": (
        "spread = jax.jit(half, out_shardings=NamedSharding(mesh, P()))\n"
        "for w in (1, 2):\n    p = spread({'w': [ones * w, ones + (k == 2)]})",
        "Processes 0,1,3 passed params['w'][1][0, 0] = 1.0 to jit(half), line 3, and process 2 "
        "passed 2.0",
        BROADCAST,
    ),
    "an array that all processes hold": (
        "same = jax.make_array_from_process_local_data(NamedSharding(mesh, P()), np.full(4, 1.0 + "
        "(k == 2)))\nz = y + same",
        "Processes 0,1,3 passed same[0] = 1.0 to jit(add), line 2, and process 2 passed 2.0",
        f"{BROADCAST}(same)",
    ),
    "an operand that is too long to be quoted": (
        "z = (jnp.arange(4.0) + jnp.ones(4) * (k == 1) * 2.0) < y",
        "Processes 0,2,3 passed argument x[0] = 0.0 to jit(less), line 1, and process 1 passed 2.0",
        BROADCAST,
    ),
    "an attribute": (
        "held = type('Held', (), {'w': np.ones(4) + (k == 1)})\nz = held.w / y",
        "Processes 0,2,3 passed held.w[0] = 1.0 to jit(true_divide), line 2, and process 1 passed "
        "2.0",
        f"{BROADCAST}(held.w)",
    ),
    "parts of an array that several processes hold": (
        "split = jax.make_array_from_process_local_data(NamedSharding(mesh, P('b')), "
        "np.arange(4.0) + [0, 0, 0, k == 3])\nz = y - split",
        "Processes 0-2 passed split[3] = 3.0 to jit(subtract), line 2, and process 3 passed 4.0",
        f"{BROADCAST}(split)",
    ),
    "a large array that all processes hold": (
        "big = jax.make_array_from_process_local_data(NamedSharding(mesh, P()), np.ones(9000) + "
        "k // 3)\nz = jax.jit(jnp.sin)(big)",
        "Processes 0-2 passed big[0] = 1.0 to jit(sin), line 2, and process 3 passed 2.0",
        f"{BROADCAST}(big)",
    ),
    "large arrays": (
        "z = jax.jit(jnp.sin, out_shardings=NamedSharding(mesh, P('a')))(np.ones((80, 80)) * k)",
        "Process 0 passed `np.ones((80, 80)) * k` = one value to jit(sin), line 1, process 1 "
        "passed another value, process 2 passed a third value, and process 3 passed yet another "
        "value",
        f"{BROADCAST}(np.ones((80, 80)) * k)",
    ),
}


@pytest.mark.parametrize("case", UNEQUAL)
def test_unequal_inputs_of_a_launch_without_communication(
    values_cluster: mcnb.Cluster, case: str
) -> None:
    source, passed, mend = UNEQUAL[case]
    values_cluster.run(INIT).raise_for_errors()
    result = values_cluster.run(source)
    assert result.text() == f"Note: {passed}. {TAKEN}{mend}\n"
    assert (result.ok, result.verdict) == (True, None)
    assert goes_on(values_cluster)


@pytest.mark.parametrize("values", [None, True])
def test_rounding_of_an_array_that_all_processes_hold(
    values_cluster: mcnb.Cluster, values: bool | None
) -> None:
    values_cluster.run(INIT).raise_for_errors()
    result = values_cluster.run(
        "third = np.full(4, 1 / 3, np.float32)\n"
        "if k == 2: third = np.nextafter(third, np.float32(1))\n"
        "same = jax.make_array_from_process_local_data(NamedSharding(mesh, P()), third)\n"
        "z = y + same",
        values=values,
    )
    passed = (
        "Note: Processes 0,1,3 passed same[0] = 0.33333334 to jit(add), line 4, and process 2 "
        f"passed 0.33333337. {TAKEN}{BROADCAST}(same)\n"
    )
    assert result.text() == (passed if values else "")


def test_a_note_says_what_a_verdict_came_from(values_cluster: mcnb.Cluster) -> None:
    values_cluster.run(INIT).raise_for_errors()
    error = values_cluster.run(
        "w = whole(jax.random.key(k == 2))\ndot(x, {'w': w[:4, :3]})"
    ).error()
    assert error is not None
    assert "Processes diverged: a replicated argument differs" in "\n".join(error.lines)
    assert (
        "Processes 0,1,3 passed key = [0 0] to jit(init), line 1, and process 2 passed [0 1]. "
        f"{TAKEN}{SAME_SEED}"
    ) in str(error)


@pytest.mark.parametrize(
    "source",
    [
        "w = make(jax.random.key(7))",
        "z = y * 2.0 + np.arange(4.0) - jnp.ones((8, 4))",
        "if k == 0: y * 5.0\nz = y * 7.0",
        "for i in range(2 + k): z = y * i",
        "own = jax.jit(init)(jax.random.key(k)) * k",
        "mine = jax.make_array_from_process_local_data(NamedSharding(mesh, P('a')), ones[:2] * k)",
        "mine = jax.make_array_from_process_local_data(NamedSharding(mesh, P('a')), ones[:2] * k)\n"
        "z = jax.jit(jnp.tan)(mine) + replicated(ones[0])",
    ],
)
@pytest.mark.parametrize("values", [None, True])
def test_inputs_that_are_equal_or_of_one_process(
    values_cluster: mcnb.Cluster, source: str, values: bool | None
) -> None:
    values_cluster.run(INIT).raise_for_errors()
    assert values_cluster.run(f"{source}\nNone", values=values).text() == ""


@pytest.mark.parametrize(
    ("source", "by_default"),
    [
        ("w = make(jax.random.key({}))", True),
        ("z = y * np.arange({0}, 4.0 + {0})", True),
        ("z = y * (1.5 + {})", False),
        (
            "z = y * jax.make_array_from_process_local_data(NamedSharding(mesh, P()), "
            "np.full(4, 1.0 + {}))",
            False,
        ),
    ],
)
def test_the_inputs_of_a_known_computation(
    values_cluster: mcnb.Cluster, source: str, by_default: bool
) -> None:
    values_cluster.run(INIT).raise_for_errors()
    values_cluster.run(source.format(0)).raise_for_errors()
    for values, expected in ((None, by_default), (False, False), (True, True)):
        for last in range(3):
            cell = f"for i in range(3): {source.format(f'k * (i == {last})')}"
            assert bool(values_cluster.run(cell, values=values).notes) == expected


def test_a_script_with_unequal_inputs_that_fails_later(tmp_path: Path) -> None:
    program = f"{BEGIN}y = x * (1.0 + k)\nif k: raise ValueError('late')\n"
    code, _, err = run(tmp_path, program, "train.py", "-n", "2", "-d", "1")
    assert code == 1
    said = [line for line in err if line.startswith("mcnb run: ")]
    assert [one.partition("train.py")[0] for one in said] == [
        "mcnb run: process 1 raised ValueError: late (",
        "mcnb run: Process 0 passed `1.0 + k` = 1.0 to jit(multiply), ",
    ]


def test_a_script_with_unequal_inputs(tmp_path: Path) -> None:
    program = f"{BEGIN}y = x * (1.0 + k)\nprint('done')\n"
    code, out, err = run(tmp_path, program, "train.py", "-n", "2", "-d", "1")
    line = BEGIN.count("\n") + 1
    assert (code, out) == (0, ["[0] done", "[1] done"])
    assert told(err) == (
        f"Process 0 passed `1.0 + k` = 1.0 to jit(multiply), train.py:{line}, and process 1 passed "
        f"2.0. {TAKEN}{BROADCAST}(1.0 + k)"
    )
