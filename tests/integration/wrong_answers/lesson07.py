"""Plausible wrong answers to the exercises of lesson 07, each with the hint that it gets."""

from __future__ import annotations

FUNCTION = "write a function that returns what a device should have afterwards, as an array."
ALONE = "nothing is sent: a block gets to another device by a collective only."

WRONG = {
    "07.1": {
        "def swap(block): ...": FUNCTION,
        "swap = [(0, 1), (1, 0)]": FUNCTION,
        "def swap(block): return block[::-1]": ALONE,
        # One way only.
        "import jax\ndef swap(block): return jax.lax.ppermute(block, 'local', [(0, 1)])": (
            "a device to which nobody sends has zeros: each of the two has to send to the other."
        ),
        # A ring through all devices.
        """
import jax
def swap(block):
    ring = [(i, (i + 1) % 8) for i in range(8)]
    return jax.lax.ppermute(block, ("process", "local"), ring)
""": "this sends between processes. The two devices of one process differ in 'local'.",
        """
import jax, jax.numpy as jnp
def swap(block):
    i = jax.lax.axis_index("local")
    both = jnp.zeros((2, *block.shape), block.dtype).at[i].set(block)
    return jax.lax.psum(both, "local")[1 - i]
""": ("right numbers, but more is sent than one block: which collective sends only that?"),
        "import jax\ndef swap(block): return jax.lax.psum(block, 'local') + 0 * block": (
            "each device should have the block of the other one, and nothing else."
        ),
    },
    "07.2": {
        "def centred(block): ...": FUNCTION,
        "def centred(block): return block - block.mean()": (
            "nothing is sent: this is each block's own mean. It should be one over devices."
        ),
        "import jax\ndef centred(block): return block - jax.lax.pmean(block, 'local')": (
            "this brings together the devices of one process. The mean is over processes."
        ),
        """
import jax
def centred(block):
    return block - jax.lax.pmean(block, ("process", "local"))
""": "this brings together all devices. The mean is along one axis of the mesh only.",
        "import jax\ndef centred(block): return block - jax.lax.psum(block, 'process')": (
            "the axis is right. From the block, subtract the mean, and return the difference."
        ),
        """
import jax
def centred(block):
    return block - jax.lax.all_gather(block, "process").mean(axis=0)
""": "right numbers, but more is sent than a mean needs: which collective sends less?",
    },
    "07.3": {
        "def matvec(columns, part): ...": FUNCTION,
        "def matvec(columns, part): return columns @ part": (
            "nothing is sent: what a device can compute alone is one summand of the product."
        ),
        "import jax\ndef matvec(columns, part): return jax.lax.psum(columns @ part, 'd')": (
            "together this has the shape (64,): a device should keep its own part of the sum, not "
            "all of it."
        ),
        # The sum on every device, of which each then takes its own part.
        """
import jax
def matvec(columns, part):
    total = jax.lax.psum(columns @ part, "d")
    return jax.lax.dynamic_slice(total, (jax.lax.axis_index("d"),), (1,))
""": "right numbers, but more is sent than needed: no device needs more than its own part.",
        # Sent on, but not added up.
        """
import jax
def matvec(columns, part):
    return jax.lax.all_to_all(columns @ part, "d", 0, 0, tiled=True)[:1]
""": "each device multiplies what it has, and then all that they computed is added up.",
    },
    "07.4": {
        "def my_all_gather(block): ...": FUNCTION,
        "def my_all_gather(block): return block": ALONE,
        "import jax\ndef my_all_gather(block): return jax.lax.all_gather(block, 'd', tiled=True)": (
            "build it from jax.lax.ppermute and no other collective."
        ),
        # In the order of arrival.
        """
import jax, jax.numpy as jnp
def my_all_gather(block):
    arrived = [block]
    for _ in range(7):
        arrived.append(jax.lax.ppermute(arrived[-1], "d", [(i, (i + 1) % 8) for i in range(8)]))
    return jnp.concatenate(arrived)
""": (
            "all are there, but not in the order of the devices: after s steps of the ring, whose "
            "number is it that comes to device jax.lax.axis_index('d')?"
        ),
        # Once round the whole ring, until one's own comes back.
        """
import jax, jax.numpy as jnp
def my_all_gather(block):
    arrived = []
    for _ in range(8):
        block = jax.lax.ppermute(block, "d", [(i, (i + 1) % 8) for i in range(8)])
        arrived.append(block)
    return jnp.concatenate(arrived)[(jax.lax.axis_index("d") - 1 - jnp.arange(8)) % 8]
""": "right numbers, but with more sending than needed: its own a device has already.",
        # Half of them twice.
        """
import jax, jax.numpy as jnp
def my_all_gather(block):
    arrived = []
    for _ in range(8):
        block = jax.lax.ppermute(block, "d", [(i, (i + 1) % 8) for i in range(8)])
        arrived.append(block)
    return jnp.concatenate(arrived[:4] * 2)
""": "every step of the ring brings another device's number: none is missing, none twice.",
        """
import jax
def my_all_gather(block):
    return jax.lax.ppermute(block, "d", [(i, (i + 1) % 8) for i in range(8)])
""": "each device should have 8 numbers, one from each device.",
    },
}
