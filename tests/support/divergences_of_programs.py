"""Ways to part: under a condition, and by different computations."""

from __future__ import annotations

from tests.support.divergences import DONE, IF_ZERO, STATIC, Divergence, all_at, alone

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
        says=("process 0 is waiting in max f32", "processes 1-3 are waiting in sum f32"),
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
        says=("the order of the devices: P3.1 P3.0",),
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
        says=(
            "the compiled program; first different line: ",
            "Likely cause: the lambda depends on a value that differs between processes: "
            "`n = float(k == 3)` (line 1). What differs: the compiled program; first different ",
            ". Hint: what the function uses besides",
        ),
    ),
    "other closed-over array of NumPy": Divergence(
        "c = np.arange(32).reshape(8, 4)\nc[5, 1] += k == 2\njax.jit(lambda v: jnp.sum(v * c))(x)",
        "mismatch",
        all_at(3),
        says=(
            "a constant, f32[8,4] at [5, 1]: 21 on processes 0,1,3; 22 on process 2. Likely "
            "cause: the lambda depends on a value that differs between processes: `c[5, 1] "
            "+= k == 2` (line 2)",
        ),
    ),
    "other closed-over array of JAX": Divergence(
        "c = jax.random.normal(jax.random.key(k // 3), (8, 4))\n"
        "jax.jit(lambda v: jnp.sum(v * c))(x)",
        "mismatch",
        all_at(2),
        says=("a constant, f32[8,4] at [0, 0]: ",),
    ),
    "other large constant": Divergence(
        "c = np.random.default_rng(0).random((2048, 1024))\nc[2000, 3] += k == 1\n"
        "jax.jit(lambda v: jnp.sum(v) + jnp.sum(c * v[0, 0]))(x)",
        "mismatch",
        all_at(3),
        says=(
            "What differs: the compiled program. Likely cause: the lambda depends on a value that "
            "differs between processes: `c[2000, 3] += k == 1` (line 2). Hint: what "
            "the function uses",
        ),
    ),
    "other constant inside shard_map": Divergence(
        "table = np.random.default_rng(k == 3).integers(0, 1000, 64)\n"
        "f = jax.shard_map(lambda v: lax.psum(v.sum() * table, ('a', 'b')), mesh=mesh,"
        " in_specs=P('a', 'b'), out_specs=P())\njax.jit(f)(x)",
        "mismatch",
        all_at(3),
        says=(
            "a constant, f32[64] at [0]: ",
            "Likely cause: the lambda depends on a value that differs between processes: "
            "`table = np.random.default_rng(k == 3).integers(0, 1000, 64)` (line 1)",
        ),
    ),
    "other bytes": Divergence(
        "c = np.arange(64, dtype=np.int8).reshape(4, 16)\nc[3, 15] = k == 0\n"
        "jax.jit(lambda v: jnp.sum(v) + jnp.sum(c * v[0, 0].astype(np.int8)))(x)",
        "mismatch",
        all_at(3),
        says=("a constant, s8[4,16] at [3, 15]: 1 on process 0; 0 on processes 1-3",),
    ),
    "other half of a triangular system": Divergence(
        "m = put(np.eye(4) + np.ones((4, 4)), P())\n"
        "solve = jax.scipy.linalg.solve_triangular\n"
        "jax.jit(lambda m, v: jnp.sum(solve(m, v.T, lower=bool(k == 2))))(m, x)",
        "mismatch",
        all_at(3),
        says=(
            "the setting uplo of lapack_strsm_ffi: 'U' on processes 0,1,3; 'L' on process 2",
            "Likely cause: the lambda depends on a value that differs between processes: "
            "`jax.jit(lambda m, v: jnp.sum(solve(m, v.T, lower=bool(k == 2))))(m, x)` (line 3)",
        ),
    ),
    "transposed triangular system": Divergence(
        "m = put(np.eye(4) + np.ones((4, 4)), P())\n"
        "solve = jax.scipy.linalg.solve_triangular\n"
        "jax.jit(lambda m, v: jnp.sum(solve(m, v.T, trans=int(k == 1))))(m, x)",
        "mismatch",
        all_at(3),
    ),
    "other half of a symmetric matrix": Divergence(
        "m = put(np.eye(4) * 9 + np.ones((4, 4)), P())\n"
        "f = lambda m: jnp.linalg.eigh(m, UPLO='L' if k else 'U', symmetrize_input=False)[0]\n"
        "jax.jit(lambda m, v: jnp.sum(v) + jnp.sum(f(m)))(m, x)",
        "mismatch",
        all_at(3),
        says=("the setting uplo of lapack_ssyevd_ffi: 'U' on process 0; 'L' on processes 1-3",),
    ),
    "other precision of a product": Divergence(
        "p = lax.Precision.HIGHEST if k else lax.Precision.DEFAULT\n"
        "jax.jit(lambda v: jnp.sum(jnp.matmul(v, v.T, precision=p)))(x)",
        "mismatch",
        all_at(2),
    ),
    "donated by one": Divergence(
        "f = jax.jit(lambda v: v.at[0].set(jnp.sum(v)), donate_argnums=(0,) if k == 1 else ())\n"
        "f(put(np.ones((8, 4)), P('a', 'b')))",
        "mismatch",
        all_at(2),
        says=(
            "the donation of argument v: kept on processes 0,2,3; donated on process 1. Hint: "
            "donate the argument on all processes, or on none",
        ),
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
# What an operation does differently with the same arguments and the same shape of its result.
OPERATIONS = {
    "diagonal of a triangular system": "solve_triangular(m, v.T, unit_diagonal=bool(k == 1))",
    "direction of a transform": "(jnp.fft.fft if k else jnp.fft.ifft)(v).real",
    "axis of a transform": "jnp.fft.fft(v[:4], axis=int(k == 2)).real",
    "direction of a sum": "lax.cumsum(v, reverse=bool(k == 0)) * v",
    "order of a sort": "jnp.sort(v, descending=bool(k)) * v",
    "random algorithm": "jax.random.uniform("
    "jax.random.key(0, impl='rbg' if k else 'threefry2x32'), (4,))",
    "rounding": "lax.round(v, lax.RoundingMethod(int(k == 3)))",
    "precision": "lax.reduce_precision(v, 8, 7 if k == 2 else 10)",
    "mode of a gather": "v.at[jnp.array([9])].get(mode='clip' if k else 'fill', fill_value=0.0)",
    "small number": "v / (jnp.sum(v) + (1e-6 if k else 1e-5))",
}
PROGRAMS |= {
    f"other {name}": Divergence(
        "from jax.scipy.linalg import solve_triangular\n"
        "m = put(np.eye(4) + np.ones((4, 4)), P())\n"
        f"jax.jit(lambda m, v: jnp.sum(v) + jnp.sum({operation}))(m, x)",
        "mismatch",
        all_at(3),
    )
    for name, operation in OPERATIONS.items()
}
# Arrays that a function closes over, of types that NumPy lacks, or that JAX passes as arguments.
CLOSED_OVER = {
    "random keys": "jax.vmap(jax.random.uniform)(c)",
    "numbers of 16 bits": "c",
    "numbers of 4 bits": "c.astype(np.float32)",
    "complex numbers": "c.imag",
}
KEYS = "jax.random.split(jax.random.key(int(k == 2)), 20)"
PROGRAMS |= {
    f"other closed-over {name}": Divergence(
        f"c = {value}\njax.jit(lambda v: jnp.sum(v) + jnp.sum(v[0, 0] * {CLOSED_OVER[name]}))(x)",
        "mismatch",
        all_at(2),
    )
    for name, value in {
        "random keys": KEYS,
        "numbers of 16 bits": "jnp.zeros(40, jnp.bfloat16).at[33].set(float(k == 1))",
        "numbers of 4 bits": "jnp.zeros(40, jnp.int4).at[33].set(int(k == 1))",
        "complex numbers": "np.where(np.arange(40) == 33, 1j * (k == 1) + 1, 0)",
    }.items()
}
PROGRAMS |= {
    f"other {name}, kept out of the program": Divergence(
        "jax.config.update('jax_use_simplified_jaxpr_constants', True)\n"
        f"c = {value}\n"
        "try: jax.jit(lambda v: jnp.sum(v) * jnp.sum(c * v[0, 0]))(x)\n"
        "finally: jax.config.update('jax_use_simplified_jaxpr_constants', False)",
        "mismatch",
        all_at(3),
    )
    for name, value in {
        "array of NumPy": "np.arange(40.0) + (np.arange(40) == 9) * (k == 3)",
        "array of JAX": "jnp.arange(40.0).at[9].add(float(k == 3))",
        "replicated array": "put(np.arange(40.0) + (k == 3), P())",
    }.items()
}
PERMUTE = (
    "f = jax.jit(jax.shard_map(lambda v: {}, mesh=mesh, in_specs=P('a', 'b'),"
    " out_specs=P('a', 'b')))\n"
)
PROGRAMS |= {
    # XLA makes one group of all devices for it, whatever its pairs.
    "permuted between two": Divergence(
        PERMUTE.format("lax.ppermute(v, 'a', [(0, 1), (1, 0)])") + "if k < 2:\n    f(x)",
        "missing",
        {0: 3, 1: 3},
        {2: DONE, 3: DONE},
        says=("this line runs only if `k < 2`",),
    ),
    "permuted among a process's own devices": Divergence(
        PERMUTE.format("lax.ppermute(v, 'b', [(0, 1), (1, 0)])") + "if k == 2:\n    f(x)",
        "missing",
        **alone(2, 3),
    ),
    "permuted in a loop": Divergence(
        PERMUTE.format("lax.fori_loop(0, 3, lambda _, v: lax.ppermute(v, 'a', [(2, 3)]), v)")
        + "if k >= 2:\n    f(x)",
        "missing",
        {2: 3, 3: 3},
        {0: DONE, 1: DONE},
    ),
    "shuffled by two": Divergence(
        PERMUTE.format("lax.pshuffle(v, 'a', [1, 0, 2, 3])") + "if k < 2:\n    f(x)",
        "missing",
        {0: 3, 1: 3},
        {2: DONE, 3: DONE},
    ),
    "permuted the other way": Divergence(
        PERMUTE.format("lax.ppermute(v, 'a', [(0, 1)] if k else [(1, 0)])") + "f(x)",
        "mismatch",
        all_at(2),
    ),
    "donated by name": Divergence(
        "g = lambda v: v.at[0].set(jnp.sum(v))\n"
        "f = jax.jit(g, donate_argnames=('v',) if k == 1 else ())\n"
        "f(put(np.ones((8, 4)), P('a', 'b')))",
        "mismatch",
        all_at(3),
        says=("the donation of argument v: kept on processes 0,2,3; donated on process 1",),
    ),
    "another argument donated": Divergence(
        "f = jax.jit(lambda u, v: (u + jnp.sum(v), v - 1), donate_argnums=(int(k == 3),))\n"
        "f(put(np.ones((8, 4)), P('a', 'b')), put(np.ones((8, 4)), P('a', 'b')))",
        "mismatch",
        all_at(2),
        says=("the donation of argument u: donated on processes 0-2; kept on process 3",),
    ),
    "a tree donated by some": Divergence(
        "f = jax.jit(lambda t: {n: v.at[0].set(jnp.sum(v)) for n, v in t.items()},\n"
        "            donate_argnums=(0,) if k else ())\n"
        "f({'w': put(np.ones((8, 4)), P('a', 'b'))})",
        "mismatch",
        all_at(3),
        says=("the donation of argument t['w']: kept on process 0; donated on processes 1-3",),
    ),
}
