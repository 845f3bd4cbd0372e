"""Plausible wrong answers to the exercises of lesson 08, each with the hint that it gets."""

from __future__ import annotations

_FIRST = (
    "look again at the first: every device gets the gradient of each weight and each bias of all "
    "four layers."
)
_SECOND = (
    "look again at the second: three of the eight arrays are split over 'model', and a device "
    "needs one of 2 parts of their gradients."
)
_THIRD = (
    "look again at the third: how many of 8,192 rows are on one of 4 processes, and how many "
    "numbers has a row between the hidden layers?"
)
_THREE = "bill is three whole numbers, in the order of the exercise."

_NETWORK = """
import jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P
STEP = 0.005
def loss(params, batch):
    rows, targets = batch
    *hidden, (last, bias) = params
    for W, b in hidden:
        rows = jnp.maximum(rows @ W + b, 0)
    return jnp.mean(jnp.sum((rows @ last + bias - targets) ** 2, axis=-1))
"""
_PAIR = "write a function that returns new parameters and a new velocity, in that order."
_VELOCITY = "the new velocity is 0.9 times the old one plus the gradient of loss."
_LAYOUT = (
    "the numbers are right, but XLA chose a layout. Each array that went in knows its sharding: "
    "jax.jit can be told what should come out."
)

_SPEC = "from jax.sharding import PartitionSpec as P\n"
_HOLDS = "each device still holds too much. Which weights are on both devices of a process?"
_SENDS = (
    "small enough, but more is sent. Columns, then rows, is a pair that sums up once. Which "
    "layers make two such pairs, and which biases are split with their columns?"
)
_ONCE = "name an axis of the mesh at most once in a spec, and no more axes than dimensions."
_LIST = "set leaner to a list of four pairs, (P(...), P(...)), one for each layer, like specs."

WRONG = {
    "08.1": {
        "bill = 246306833, 110450703, 16777216": (
            "that counts numbers. How many bytes does a float32 take?"
        ),
        "bill = 562987048, 294535208, 67108864": (
            "that is the result. How much of it does one of 8 devices send?"
        ),
        # Without the biases.
        "bill = 985055232, 441679872, 67108864": _FIRST,
        # Everything is halved.
        "bill = 985227334, 422240286, 67108864": _SECOND,
        # As if eight devices met along 'batch'.
        "bill = 985227334, 515436614, 67108864": _SECOND,
        # All rows, or those of one of eight devices.
        "bill = 985227334, 441802812, 268435456": _THIRD,
        "bill = 985227334, 441802812, 33554432": _THIRD,
        "bill = 985227334, 'half', 67108864": _SECOND,
        "bill = 985227334, 441802812": _THREE,
        "bill = 985227334": _THREE,
    },
    "08.2": {
        # Its own layout comes out of XLA.
        f"""{_NETWORK}
@jax.jit
def momentum(params, velocity, batch):
    grads = jax.grad(loss)(params, batch)
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
    return jax.tree.map(lambda p, v: p - STEP * v, params, velocity), velocity
""": _LAYOUT,
        # Everything is replicated.
        f"""{_NETWORK}
def momentum(params, velocity, batch):
    everywhere = jax.sharding.NamedSharding(batch[0].sharding.mesh, P())
    def step(params, velocity, batch):
        grads = jax.grad(loss)(params, batch)
        velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
        return jax.tree.map(lambda p, v: p - STEP * v, params, velocity), velocity
    return jax.jit(step, out_shardings=everywhere)(params, velocity, batch)
""": _LAYOUT,
        # The parameters follow the old velocity.
        f"""{_NETWORK}
@jax.jit
def momentum(params, velocity, batch):
    grads = jax.grad(loss)(params, batch)
    params = jax.tree.map(lambda p, v: p - STEP * v, params, velocity)
    return params, jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
""": "the parameters go against the new velocity, STEP times as far.",
        # No momentum at all.
        f"""{_NETWORK}
@jax.jit
def momentum(params, velocity, batch):
    grads = jax.grad(loss)(params, batch)
    return jax.tree.map(lambda p, g: p - STEP * g, params, grads), velocity
""": _VELOCITY,
        # The wrong way round.
        f"""{_NETWORK}
@jax.jit
def momentum(params, velocity, batch):
    grads = jax.grad(loss)(params, batch)
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
    return velocity, jax.tree.map(lambda p, v: p - STEP * v, params, velocity)
""": _VELOCITY,
        "def momentum(params, velocity, batch):\n    return params": _PAIR,
        "def momentum(params, velocity, batch):\n    ...": _PAIR,
        "momentum = 0.9": _PAIR,
    },
    "08.3": {
        # The lesson's specs.
        f"""{_SPEC}
leaner = [(P(), P()), (P(None, 'model'), P('model')), (P('model'), P()), (P(), P())]
""": _HOLDS,
        # W4 alone.
        f"""{_SPEC}
leaner = [(P(), P()), (P(None, 'model'), P('model')), (P('model'), P()), (P('model'), P())]
""": _HOLDS,
        f"{_SPEC}leaner = [(P(None, 'model'), P('model'))] * 4": _SENDS,
        f"{_SPEC}leaner = [(P('model'), P('model'))] * 4": _SENDS,
        f"{_SPEC}leaner = [(P('batch', 'model'), P('model'))] * 4": (
            "use the axis 'model' alone: along 'batch', only gradients are to travel."
        ),
        f"{_SPEC}leaner = [(P('model', 'model'), P())] * 4": _ONCE,
        f"{_SPEC}leaner = [(P(), P(None, 'model'))] * 4": _ONCE,
        f"{_SPEC}leaner = [(P(), P('models'))] * 4": _ONCE,
        f"{_SPEC}leaner = [P(None, 'model')] * 4": _LIST,
        f"{_SPEC}leaner = [(P(), P())] * 3": _LIST,
        "leaner = [('model', None)] * 4": _LIST,
        "leaner = 'model'": _LIST,
    },
}
