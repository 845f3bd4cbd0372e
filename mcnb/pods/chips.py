"""What TPU chips can do at most, as their maker publishes it.

The tables are those of Google Cloud's documentation, at the address of each chip. A rate is what no
program exceeds, not what programs reach. Where none is published for numbers of 8 bits, it is taken
to be twice that for bfloat16, so that a bound stays a bound.
"""

from __future__ import annotations

from dataclasses import dataclass

_DOCUMENTATION = "https://docs.cloud.google.com/tpu/docs"


@dataclass(frozen=True)
class Chip:
    """A kind of chip.

    Attributes:
        name: Its name, as in the name of a topology: `"v5e"`.
        flops: Operations a second at most, on bfloat16.
        small_flops: The same on numbers of 8 bits.
        memory: The bytes of its memory (HBM).
        memory_rate: The bytes a second to and from its memory.
        link_rate: The bytes a second that all of its links to other chips carry, both directions
            together (ICI).
        source: Where that is published.
    """

    name: str
    flops: float
    small_flops: float
    memory: float
    memory_rate: float
    link_rate: float
    source: str


CHIPS = {
    "TPU v5 lite": Chip("v5e", 197e12, 393e12, 16e9, 819e9, 400e9, f"{_DOCUMENTATION}/v5e"),
    "TPU v5": Chip("v5p", 459e12, 918e12, 95e9, 2765e9, 1200e9, f"{_DOCUMENTATION}/v5p"),
    "TPU v6 lite": Chip("v6e", 918e12, 1836e12, 32e9, 1638e9, 800e9, f"{_DOCUMENTATION}/v6e"),
}
