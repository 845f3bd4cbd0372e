"""What a collective sends, by formula and as devices on a ring do it."""

from __future__ import annotations

import pytest

from mcnb.lockstep.hlo import Operation
from mcnb.pictures.program import Use, sent_bytes, wire_bytes

GROUPS = ((0, 1, 2, 3), (4, 5, 6, 7))
SIZE = 1024


def sent_on_a_ring(kind: str, devices: int, result: int) -> float:
    """Return the bytes that a device sends, counted step by step, on average over the devices."""
    sent = [0.0] * devices
    blocks = {
        "reduce-scatter": [result],
        "all-gather": [result / devices],
        "all-reduce": [result / devices] * 2,  # a reduce-scatter, and an all-gather
    }
    for block in blocks[kind]:
        for _ in range(devices - 1):  # after so many steps, each block has been on every device
            sent = [bytes_ + block for bytes_ in sent]
    return sum(sent) / devices


@pytest.mark.parametrize("devices", [1, 2, 3, 8, 256])
@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "reduce-scatter"])
def test_a_ring_sends_what_the_formula_says(kind: str, devices: int) -> None:
    sent = wire_bytes(Operation(kind, SIZE, (tuple(range(devices)),)))
    assert sent == pytest.approx(sent_on_a_ring(kind, devices, SIZE))


@pytest.mark.parametrize(
    ("kind", "groups", "sent"),
    [
        ("all-to-all", GROUPS, 3 / 4 * SIZE),
        ("collective-broadcast", GROUPS, 3 / 4 * SIZE),
        ("collective-permute", ((0, 1), (1, 0)), SIZE),
        ("collective-permute", ((0, 0), (1, 1)), 0),
        ("ragged-all-to-all", GROUPS, None),
        ("all-reduce", None, None),
        ("all-reduce", ((0,), (1,)), 0),
    ],
)
def test_what_other_collectives_send(
    kind: str, groups: tuple[tuple[int, ...], ...] | None, sent: float | None
) -> None:
    assert wire_bytes(Operation(kind, SIZE, groups)) == sent


def test_a_reduce_scatter_and_an_all_gather_send_as_much_as_an_all_reduce() -> None:
    eight = (tuple(range(8)),)
    two_steps = [
        Use(Operation("reduce-scatter", 4, eight)),
        Use(Operation("all-gather", 32, eight)),
    ]
    assert sent_bytes(two_steps) == sent_bytes([Use(Operation("all-reduce", 32, eight))]) == 56


def test_loops_and_unknown_collectives() -> None:
    known = Operation("all-gather", 8, ((0, 1),))
    uses = [Use(known, 3), Use(known, None), Use(Operation("ragged-all-to-all", 8, ((0, 1),)))]
    assert sent_bytes(uses) == 12 + 4
