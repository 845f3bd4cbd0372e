"""How long a step takes at least on a chip: three times that can't be beaten.

The chip has to do the program's operations; to read its arguments and write its results, once each;
and to send and receive what its collectives need. Whatever overlaps, a step is not faster than the
longest of these. What an all-reduce takes at least: P. Patarasuk and X. Yuan, Bandwidth optimal
all-reduce algorithms for clusters of workstations, Journal of Parallel and Distributed Computing 69
(2009), 117-124. In the others, a device receives what it lacks, or sends what others lack of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mcnb.lockstep.hlo import Operation
from mcnb.pictures.program import Use

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


@dataclass(frozen=True)
class Bound:
    """How long a step takes at least, in seconds.

    Attributes:
        computing: For the operations.
        memory: To read arguments and write results.
        links: To send what the collectives need.
    """

    computing: float
    memory: float
    links: float

    @property
    def seconds(self) -> float:
        """The longest of the three."""
        return max(self.computing, self.memory, self.links)


def least_time(
    chip: Chip, flops: float, moved: float, uses: Iterable[Use], *, small: bool = False
) -> Bound:
    """Return how long a step takes at least.

    Args:
        chip: The chip.
        flops: How many operations a device has to do.
        moved: How many bytes its arguments and results have on a device.
        uses: The program's collectives. A branch that may not be taken counts as nothing; a loop
            that does not tell how often it runs, once.
        small: Whether it computes with numbers of 8 bits.

    Example:
        >>> from mcnb.pods.bounds import CHIPS
        >>> least_time(CHIPS["TPU v5 lite"], 197e9, 8.19e8, []).seconds
        0.001
    """
    crossing = sum(
        crossing_bytes(use.operation) * (1 if use.times is None else use.times)
        for use in uses
        if not use.branch
    )
    return Bound(
        flops / (chip.small_flops if small else chip.flops),
        moved / chip.memory_rate,
        crossing / (chip.link_rate / 2),  # it is published for both directions together
    )


def crossing_bytes(operation: Operation) -> float:
    """Return how many bytes a device sends, or receives, at least in a collective.

    Args:
        operation: The collective; its bytes are those of its result on a device.

    Example:
        >>> crossing_bytes(Operation("all-reduce", 1024, ((0, 1, 2, 3),)))
        1536.0
    """
    members = max((len(group) for group in operation.groups or ()), default=1)
    others = (members - 1) / members
    share = {
        "all-reduce": 2 * others,
        "all-gather": others,
        "reduce-scatter": members - 1,
        "all-to-all": others,
        "collective-permute": 1,
    }
    return float(operation.bytes * share.get(operation.kind, 0))
