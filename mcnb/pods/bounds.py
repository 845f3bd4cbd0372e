"""Compute lower bounds on the time of a step on a chip.

A chip must perform the program's operations, read its arguments and write its results once each,
and send and receive the data of its collectives. Even if these overlap, a step takes at least as
long as the longest of them. `wire_bytes` has the bound on a collective's data, and its source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mcnb.pictures.program import Use, sent_bytes

_DOCUMENTATION = "https://docs.cloud.google.com/tpu/docs"


@dataclass(frozen=True)
class Chip:
    """Kind of chip, with its published peak figures.

    Attributes:
        name: Name, as in the name of a topology: `"v5e"`.
        flops: Peak operations per second on bfloat16.
        small_flops: Peak operations per second on 8-bit numbers.
        memory: Size of the memory (HBM) in bytes.
        memory_rate: Memory bandwidth in bytes per second.
        link_rate: Bandwidth of all links to other chips (ICI) together, in bytes per second, as
            the sum of both directions.
        source: URL of the published figures.
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


@dataclass(frozen=True)
class Bound:
    """Lower bounds on the time of a step, in seconds.

    Attributes:
        computing: Time for the operations.
        memory: Time to read arguments and write results.
        links: Time to send the data of the collectives.
    """

    computing: float
    memory: float
    links: float

    @property
    def seconds(self) -> float:
        """The longest of the three times."""
        return max(self.computing, self.memory, self.links)


def least_time(
    chip: Chip, flops: float, moved: float, uses: Iterable[Use], *, small: bool = False
) -> Bound:
    """Return lower bounds on the time of a step.

    Args:
        chip: Chip on which the program runs.
        flops: Number of operations per device.
        moved: Bytes of the arguments and results per device.
        uses: Collectives of the program. One in a branch that may not be taken is not counted; one
            in a loop with an unknown trip count is counted once.
        small: Whether the program computes with 8-bit numbers.

    Example:
        >>> from mcnb.pods.bounds import CHIPS
        >>> least_time(CHIPS["TPU v5 lite"], 197e9, 8.19e8, []).seconds
        0.001
    """
    crossing = sent_bytes([use for use in uses if not use.branch])
    return Bound(
        flops / (chip.small_flops if small else chip.flops),
        moved / chip.memory_rate,
        crossing / (chip.link_rate / 2),  # published as the sum of both directions
    )
