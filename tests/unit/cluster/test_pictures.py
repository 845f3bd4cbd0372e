"""Pictures of a cluster: its devices, and a variable as all of its processes see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mcnb.cluster.pictures import MOST_PROCESSES, pictures_of
from mcnb.errors import PictureError
from mcnb.options import Options
from mcnb.pictures.scene import ELSEWHERE, Cell, Grid, Scene

TWO = Options(processes=2, devices_per_process=3)


def scene(*lines: str, title: str = "x: int32[2]") -> Scene:
    """Return a scene of an array, with the values of each device."""
    cells = tuple(Cell((k,), (f"P{k}.0", line), hint=line) for k, line in enumerate(lines))
    return Scene(title, (), (Grid((cells,)),))


def shown(scenes: dict[int, Scene], **options: Any) -> list[Scene]:
    def scenes_of(what: str, **given: Any) -> dict[int, Scene]:
        assert (what, given) == ("x", options)
        return scenes

    return [one.scene for one in pictures_of(TWO, scenes_of, ["x"], options)]


def nothing(what: str, **options: Any) -> dict[int, Scene]:
    raise AssertionError("no process is asked")


def test_a_sharding_has_the_shape_that_is_given() -> None:
    scenes = {0: scene("[1]"), 1: scene("[1]")}

    def scenes_of(what: str, shape: tuple[int, ...], **options: Any) -> dict[int, Scene]:
        assert (what, shape, options) == ("x.sharding", (8, 4), {"ids": True})
        return scenes

    [picture] = pictures_of(TWO, scenes_of, ["x.sharding", (8, 4)], {"ids": True})
    assert picture.scene == scenes[0]


def test_the_devices_of_a_cluster_are_those_of_each_process() -> None:
    [picture] = pictures_of(TWO, nothing, [], {})
    assert picture.scene == Scene(
        "2 processes, 3 devices each, cpu",
        ("Pk.i is device i of process k. 6 devices in all.",),
        (
            Grid(
                tuple(
                    tuple(Cell((k,), (f"P{k}.{i}",), hint=f"P{k}.{i}") for i in range(3))
                    for k in range(2)
                ),
                row_heads=("process 0", "process 1"),
            ),
        ),
    )


def test_of_many_processes_all_devices_are_counted_and_some_are_drawn() -> None:
    [picture] = pictures_of(Options(processes=200, devices_per_process=2), nothing, [], {})
    [grid] = picture.scene.parts
    assert isinstance(grid, Grid)
    assert (len(grid.rows), len(grid.row_heads)) == (MOST_PROCESSES, MOST_PROCESSES)
    assert picture.scene.notes == ("Pk.i is device i of process k. 400 devices in all.",)


def test_equal_scenes_are_one_picture_and_others_name_their_processes() -> None:
    one, other = scene("1", "2"), scene("1", "3", title="y: int32[2]")
    assert shown({0: one, 1: one}) == [one]
    titles = [each.title for each in shown({0: one, 1: other, 2: one})]
    assert titles == ["On P0 P2: x: int32[2]", "On P1: y: int32[2]"]


def test_values_of_all_processes_are_put_together() -> None:
    scenes = {0: scene("[1]", ELSEWHERE), 1: scene(ELSEWHERE, "[2]")}
    assert shown(scenes, values=True) == [scene("[1]", "[2]")]
    assert shown(scenes, values=False) == [
        scene("[1]", ELSEWHERE, title="On P0: x: int32[2]"),
        scene(ELSEWHERE, "[2]", title="On P1: x: int32[2]"),
    ]


def test_values_that_no_process_has_stay_elsewhere() -> None:
    scenes = {0: scene("[1]", ELSEWHERE), 1: scene(ELSEWHERE, ELSEWHERE)}
    assert shown(scenes, values=True) == [scene("[1]", ELSEWHERE)]


def test_values_of_different_arrays_are_not_put_together() -> None:
    scenes = {0: scene("[1]", ELSEWHERE), 1: scene(ELSEWHERE, "[2]", title="y: int32[2]")}
    assert len(shown(scenes, values=True)) == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            [(4, 4)],
            "mcnb.show(cluster, (4, 4)): the argument after a cluster is the name of a variable. "
            "For example: mcnb.show(cluster, 'x')",
        ),
        (
            ["x", "y"],
            "mcnb.show(cluster, 'x', 'y'): the argument after a cluster is the name of a variable. "
            "For example: mcnb.show(cluster, 'x')",
        ),
        (
            ["x", (2, "y")],
            "mcnb.show(cluster, 'x', (2, 'y')): the argument after a cluster is the name of a "
            "variable. For example: mcnb.show(cluster, 'x')",
        ),
        (
            ["z = 3"],
            "'z = 3' is neither a variable nor an expression: invalid syntax. For example: "
            "mcnb.show(cluster, 'x')",
        ),
    ],
)
def test_what_is_no_expression_is_sent_to_no_process(args: list[Any], said: str) -> None:
    asked: Callable[..., dict[int, Scene]] = nothing
    with pytest.raises(PictureError) as caught:
        pictures_of(TWO, asked, args, {})
    assert str(caught.value) == said
