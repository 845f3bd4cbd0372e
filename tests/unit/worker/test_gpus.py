"""Which GPUs a process may use, and which of them it gets."""

from __future__ import annotations

import pytest

from mcnb.errors import ClusterError
from mcnb.worker.gpus import chosen, share

GPUS = ("GPU-a1", "GPU-a2", "GPU-b")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, GPUS),
        ("", ()),
        ("2, 0", ("GPU-b", "GPU-a1")),
        ("GPU-b,GPU-a1", ("GPU-b", "GPU-a1")),
        # What follows a GPU that there is not, or that is not the only one, counts for nothing.
        ("0,3,1", ("GPU-a1",)),
        ("2,GPU-a,1", ("GPU-b",)),
    ],
)
def test_gpus_that_are_chosen(choice: str | None, expected: tuple[str, ...]) -> None:
    assert chosen(GPUS, choice) == expected


def test_neighbours_have_neighbouring_gpus() -> None:
    four = ("a", "b", "c", "d")
    assert share([("one", four), ("one", four), ("two", "ef")], 2) == [
        ("a", "b"),
        ("c", "d"),
        ("e", "f"),
    ]


@pytest.mark.parametrize(
    ("visible", "said"),
    [
        (
            [("one", "abc"), ("two", "de"), ("one", "abc")],
            "2 processes x 2 GPUs need 4 GPUs on the host one, which has 3: two processes can't "
            "have the same one. Start fewer processes, or name more hosts",
        ),
        (
            [("one", "ab"), ("two", "")],
            "No NVIDIA GPU is available on the host two: nvidia-smi -L lists none, or "
            "CUDA_VISIBLE_DEVICES hides them. Without a GPU: --platform cpu",
        ),
    ],
)
def test_too_few_gpus(visible: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(ClusterError) as refused:
        share(visible, 2)
    assert str(refused.value) == said
