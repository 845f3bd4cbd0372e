# %% 08.1
large = [784, 8192, 8192, 8192, 10]
weights = [a * b for a, b in zip(large[:-1], large[1:], strict=True)]
whole = sum(weights) + sum(large[1:])
halved = whole - (weights[1] + large[2] + weights[2]) // 2
eight, four, two = 2 * 7 / 8, 2 * 3 / 4, 2 * 1 / 2
bill = int(4 * whole * eight), int(4 * halved * four), int(4 * (8192 // 4) * 8192 * two)

# %% 08.2
import jax
import jax.numpy as jnp

STEP = 0.005


def predict(params, rows):
    *hidden, (last, bias) = params
    for W, b in hidden:
        rows = jnp.maximum(rows @ W + b, 0)
    return rows @ last + bias


def loss(params, batch):
    rows, targets = batch
    return jnp.mean(jnp.sum((predict(params, rows) - targets) ** 2, axis=-1))


def momentum(params, velocity, batch):
    def step(params, velocity, batch):
        grads = jax.grad(loss)(params, batch)
        velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
        return jax.tree.map(lambda p, v: p - STEP * v, params, velocity), velocity

    layout = jax.tree.map(lambda x: x.sharding, (params, velocity))
    return jax.jit(step, out_shardings=layout)(params, velocity, batch)


# %% 08.3
from jax.sharding import PartitionSpec as P

leaner = [
    (P(None, "model"), P("model")),
    (P("model", None), P()),
    (P(None, "model"), P("model")),
    (P("model", None), P()),
]
