"""Ways to part: under a condition, and by different computations."""

from __future__ import annotations

from tests.support.divergences import IF_ZERO, STATIC, Divergence, all_at, alone

PROGRAMS = {
    # Communication under a condition on the process index.
    "sum under if": Divergence(
        "if k == 0:\n    print(jnp.sum(x))", "missing", **alone(0, 2), says=(IF_ZERO,)
    ),
    "device_put under if": Divergence(
        "if k == 0:\n    jax.device_put(x, NamedSharding(mesh, P()))",
        "missing",
        **alone(0, 2),
        says=(
            "is waiting in device_put, line 2; processes 1-3 finished the cell without reaching it",
            IF_ZERO,
        ),
    ),
    "device_put of a host value under if": Divergence(
        "v = np.ones((8, 4))\nif k == 3:\n    jax.device_put(v, NamedSharding(mesh, P('a')))",
        "missing",
        **alone(3, 3),
        says=("in device_put",),
    ),
    "process_allgather under if": Divergence(
        "if k == 0: mu.process_allgather(np.ones(3))",
        "missing",
        **alone(0, 1),
        says=("in process_allgather",),
    ),
    "sync_global_devices under if": Divergence(
        "if k == 2:\n    mu.sync_global_devices('here')",
        "missing",
        **alone(2, 2),
        says=("in sync_global_devices",),
    ),
    "broadcast_one_to_all under if": Divergence(
        "if k == 0:\n    mu.broadcast_one_to_all(np.ones(3))",
        "missing",
        **alone(0, 2),
        says=("in broadcast_one_to_all",),
    ),
    "assert_equal under if": Divergence(
        "if k == 1: mu.assert_equal(np.ones(2))", "missing", **alone(1, 1), says=("assert_equal",)
    ),
    "shard_map under if": Divergence("if k == 1:\n    meet(x)", "missing", **alone(1, 2)),
    "pmap under if": Divergence(
        "f = jax.pmap(lambda v: lax.psum(v, 'i'), axis_name='i')\n"
        "if k == 1:\n    f(np.ones((2, 3)))",
        "missing",
        **alone(1, 3),
    ),
    "ahead-of-time compiled under if": Divergence(
        "f = total.lower(x).compile()\nif k == 0:\n    f(x)", "missing", **alone(0, 3)
    ),
    "comparison under if": Divergence(
        "if k == 0 and bool((x == x).all()): pass", "missing", **alone(0, 1)
    ),
    # Different computations.
    "x @ y against y @ x": Divergence(
        "square = put(np.ones((8, 8)), P('a', 'b'))\n"
        "if k < 3:\n    z = x.T @ square\nelse:\n    z = square @ x",
        "mismatch",
        all_at(3, 3, 3, 5),
        says=("processes 0-2 are waiting in jit(matmul) f32[4,8] f32[8,8], line 3",),
    ),
    "other function": Divergence(
        "z = (jnp.sum if k else jnp.max)(x)",
        "mismatch",
        all_at(1),
        says=("What differs: the computation: max on process 0; sum on processes 1-3",),
    ),
    "other shape": Divergence(
        "v = put(np.ones((8, 4 + 4 * (k == 2))), P('a', 'b'))\ntotal(v)",
        "mismatch",
        all_at(2),
        says=("the shape of argument", "f32[8,8] on process 2", "same global shape"),
    ),
    "other shape, behind an argument that is not used": Divergence(
        "f = jax.jit(lambda unused, used: jnp.sum(used))\n"
        "f(x, put(np.ones((8, 4 + 4 * (k == 2))), P('a', 'b')))",
        "mismatch",
        all_at(2),
        says=("the shape of argument used: f32[8,4] on processes 0,1,3; f32[8,8] on process 2",),
    ),
    "other dtype": Divergence(
        "v = put(np.ones((8, 4), np.float32 if k else np.int32), P('a', 'b'))\ntotal(v)",
        "mismatch",
        all_at(2),
        says=("the dtype of argument", "i32[8,4] on process 0; f32[8,4] on processes 1-3"),
    ),
    "other sharding": Divergence(
        "v = put(np.ones((8, 8)), P('a', 'b') if k else P('b', 'a'))\ntotal(v)",
        "mismatch",
        all_at(2),
        says=("the sharding of argument", "P('b', 'a') on process 0"),
    ),
    "other mesh axis order": Divergence(
        "m = make((4, 2), ('a', 'b')) if k else make((2, 4), ('b', 'a'))\n"
        "total(put(np.ones((8, 8)), P('a', 'b'), m))",
        "mismatch",
        all_at(2),
        says=("the mesh: {'b': 2, 'a': 4} on process 0", "all processes must use the same mesh"),
    ),
    "other device order": Divergence(
        "m = make((8,), ('a',), jax.devices()[::1 if k else -1])\n"
        "total(put(np.ones(8), P('a'), m))",
        "mismatch",
        all_at(2),
        says=("the devices, or their order: P3.1 P3.0",),
    ),
    "other static argument": Divergence(
        "scaled(x, n=k % 2)",
        "mismatch",
        all_at(1),
        says=("the static argument n: 0 on processes 0,2; 1 on processes 1,3", STATIC),
    ),
    "other closed-over number": Divergence(
        "n = float(k == 3)\njax.jit(lambda v: jnp.sum(v) + n)(x)",
        "mismatch",
        all_at(2),
        says=("the compiled program; first different line: ", "was compiled into the program"),
    ),
    "other output sharding": Divergence(
        "jax.jit(lambda v: v * 2, out_shardings=NamedSharding(mesh, P('b' if k else None)))(x)",
        "mismatch",
        all_at(1),
    ),
    "other sharding constraint": Divergence(
        "@jax.jit\ndef f(v):\n    s = NamedSharding(mesh, P('b', 'a') if k else P(None, 'a'))\n"
        "    return lax.with_sharding_constraint(v + 1, s)\nf(x)",
        "mismatch",
        all_at(5),
    ),
    "resharding to another": Divergence(
        "jax.device_put(x, NamedSharding(mesh, P('b', 'a') if k else P()))",
        "mismatch",
        all_at(1),
    ),
    "random branch": Divergence(
        "rng = np.random.default_rng(k // 2)\n"
        "if rng.random() < 0.55:\n    total(x)\nelse:\n    meet(x)",
        "mismatch",
        all_at(5, 5, 3, 3),
    ),
    "python value of an array": Divergence(
        "mine = float(x.addressable_shards[0].data[0, 0])\n"
        "z = jnp.sum(x) if mine > 10 else jnp.min(x)",
        "mismatch",
        all_at(2),
    ),
}
