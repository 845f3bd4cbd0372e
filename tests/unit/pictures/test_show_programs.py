"""What `mcnb.show` does with functions, options and what draws itself, without running anything."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import IPython.core.getipython
import IPython.display
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import mcnb
from mcnb.pictures.inspect import compiled, layout_of, moving, program_model
from mcnb.pictures.model import Device, Region
from mcnb.pictures.picture import Picture
from mcnb.pictures.scene import ELSEWHERE, Cell, Grid, Scene
from mcnb.pictures.show import value_labels
from tests.support.fake_devices import fake_devices
from tests.unit.pictures.test_show import mesh_of, struct

MESH = mesh_of((4, 2), "ab")


class Jitted:
    """A jitted function that tells what it is lowered for; its program is this."""

    __name__ = "step"

    def __init__(self) -> None:
        self.given: list[Any] = []

    def __call__(self) -> None:
        raise AssertionError("it is not run")

    def lower(self, *args: Any, **keywords: Any) -> Any:
        self.given.append((args, keywords))
        return SimpleNamespace(compile=lambda: "the program")


def test_a_jitted_function_is_compiled_for_its_arguments() -> None:
    function = Jitted()
    assert compiled(function, (1, 2), {"by": 3}) == "the program"
    assert function.given == [((1, 2), {"by": 3})]


def test_keyword_arguments_that_are_no_arrays_are_constants() -> None:
    def scale(x: Any, y: Any, z: Any, w: Any, times: int) -> Any:
        assert type(times) is int
        return (x + y + z + w) * times

    x, y = jnp.ones(2), np.ones(2, np.float32)
    z = jax.ShapeDtypeStruct((2,), "float32")
    program = compiled(scale, (x,), {"y": y, "z": z, "w": x, "times": 3})
    taken = jax.tree.leaves(program.in_avals)
    assert [(leaf.shape, leaf.dtype) for leaf in taken] == [((2,), jnp.float32)] * 4


def test_what_is_lowered_or_compiled_already_is_taken_as_it_is() -> None:
    lowered = jax.jit(lambda x: x + 1).lower(jax.ShapeDtypeStruct((2,), "float32"))
    program = compiled(lowered, ())
    assert isinstance(program, jax.stages.Compiled)
    assert compiled(program, ()) is program
    text = mcnb.picture(program, name="f").text()
    assert text.splitlines()[0] == "f: no communication"
    assert mcnb.picture(lowered, name="f").text() == text
    for given in (lowered, program):
        with pytest.raises(mcnb.PictureError, match="A compiled function takes no further"):
            mcnb.picture(given, x=1)


NEEDS = (
    "What step communicates depends on its arguments. Pass arrays or jax.ShapeDtypeStruct: "
    "mcnb.show(step, x) (<object> is missing)"
)
REFUSED = "step can't be compiled for these arguments. TypeError: <object> is missing"


@pytest.mark.parametrize(
    ("args", "keywords", "sentence"),
    [((), {}, NEEDS), ((1,), {}, REFUSED), ((), {"x": 1}, REFUSED)],
)
def test_a_function_that_does_not_take_the_arguments(
    args: tuple[Any, ...], keywords: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(mcnb.PictureError) as caught:
        compiled(failing("jax.somewhere"), args, keywords)
    assert str(caught.value) == sentence


def failing(module: str) -> Any:
    """Return a jitted function for which an error is raised in this module."""
    error = TypeError("<object at 0x7f00aa> is missing\nin a long story")
    names = {"__name__": module, "error": error}
    exec("def lower(*args, **keywords): raise error", names)
    function = Jitted()
    function.lower = names["lower"]  # type: ignore[method-assign, assignment]
    return function


@pytest.mark.parametrize("args", [(), (1,)])
def test_an_error_of_the_function_itself_is_the_learners_to_see(args: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match="is missing"):
        compiled(failing("train"), args)


def test_a_function_is_shown_with_keywords_alone_and_asked_for_arguments_if_there_are_none() -> (
    None
):
    text = mcnb.picture(lambda x: x + 1, x=jnp.ones(2), name="f").text()
    assert text.splitlines()[0] == "f: no communication"
    with pytest.raises(mcnb.PictureError) as caught:
        mcnb.picture(failing("jax.somewhere"))
    assert str(caught.value) == NEEDS


HLO = """HloModule jit__two_, is_scheduled=true, num_partitions=8

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %c = f32[] add(f32[] %a, f32[] %b)
}

ENTRY %main (p: f32[2]) -> f32[2] {
  ROOT %r = f32[2]{0} all-reduce(f32[2]{0} %p), replica_groups={}, to_apply=%add
}
"""
MEMORY = SimpleNamespace(
    argument_size_in_bytes=100, output_size_in_bytes=999, temp_size_in_bytes=10
)


def program_of(results: Any, **changes: Any) -> Any:
    """Return what `program_model` looks at of a compiled program."""
    program = SimpleNamespace(
        as_text=lambda: HLO,
        input_shardings=((), {}),
        output_shardings=[leaf.sharding for leaf in jax.tree.leaves(results)],
        out_info=results,
        memory_analysis=lambda: MEMORY,
    )
    return SimpleNamespace(**{**vars(program), **changes})


def test_a_program_is_read_with_its_devices_results_and_memory() -> None:
    results = {"y": struct((8,), MESH, "a"), "z": struct((4,), MESH)}
    model = program_model(program_of(results))
    assert model.name == "two"
    assert model.mesh is not None
    assert [axis.name for axis in model.mesh.axes] == ["a", "b"]
    assert model.devices == model.mesh.devices
    assert [(path, layout.shape) for path, layout in model.outputs] == [
        ("['y']", (8,)),
        ("['z']", (4,)),
    ]
    # XLA's own number of the results includes its table of them.
    held = 8 + 16
    assert model.memory == (("arguments", 100), ("results", held), ("what is in between", 10))
    [use] = model.uses
    assert use.operation.groups == (tuple(range(8)),)
    [(path, _)] = program_model(program_of(results["y"])).outputs
    assert path == "the result"
    assert program_model(program_of(results), "mine").name == "mine"


def test_a_program_of_which_less_is_known() -> None:
    some = [struct((8,), MESH, "a"), jax.ShapeDtypeStruct((2,), "float32")]
    model = program_model(program_of(some, as_text=lambda: "HloModule jit_f\n"))
    assert [path for path, _ in model.outputs] == ["[0]"]
    assert model.memory[1] == ("results", 999)
    assert (model.name, model.uses) == ("f", ())

    def unknown() -> Any:
        raise NotImplementedError

    for analysis in (unknown, lambda: None):
        assert program_model(program_of(some, memory_analysis=analysis)).memory == ()
    one = jax.sharding.SingleDeviceSharding(fake_devices(3)[2])
    alone = jax.ShapeDtypeStruct((2,), "float32", sharding=one)
    model = program_model(program_of([alone], as_text=lambda: ""))
    assert (model.name, model.mesh) == ("program", None)
    assert [device.id for device in model.devices] == [2]


def test_a_move_to_other_devices_has_no_program() -> None:
    x = jnp.ones(2)
    assert moving(x, x.sharding) == ()
    assert moving(x, NamedSharding(MESH, P())) is None
    assert moving(jax.ShapeDtypeStruct((2,), "float32"), x.sharding) is None


def test_regions_are_in_the_order_of_their_bounds_and_devices() -> None:
    turned = Mesh(MESH.devices[::-1, ::-1], ("a", "b"))
    layout = layout_of(NamedSharding(turned, P("a")), (8, 4), np.float32)
    assert layout.split == (("a",), ())
    assert [region.bounds[0] for region in layout.regions] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert [[str(d) for d in region.devices] for region in layout.regions] == [
        ["P3.0", "P3.1"],
        ["P2.0", "P2.1"],
        ["P1.0", "P1.1"],
        ["P0.0", "P0.1"],
    ]


def test_regions_are_ordered_also_if_the_mesh_is_not() -> None:
    layout = layout_of(NamedSharding(MESH, P(("b", "a"))), (8,), np.float32)
    assert [region.bounds[0][0] for region in layout.regions] == list(range(8))
    assert [str(region.devices[0]) for region in layout.regions] == [
        f"P{process}.{position}" for position in range(2) for process in range(4)
    ]


class Memories:
    """A device's memory, and a sharding that uses one."""

    def __init__(self, kind: str | None) -> None:
        self.memory_kind = kind
        self.spec = self.mesh = None

    def devices_indices_map(self, shape: tuple[int, ...]) -> dict[Any, tuple[slice, ...]]:
        return {fake_devices(1)[0]: (slice(None),)}


@pytest.mark.parametrize(
    ("kind", "said"), [(None, ""), ("device", ""), ("pinned_host", "pinned_host")]
)
def test_memory_other_than_the_usual_is_told(kind: str | None, said: str) -> None:
    given = SimpleNamespace(sharding=Memories(kind), shape=(2,), dtype=np.dtype("float32"))
    assert layout_of(given).memory == said


class Client:
    pass


@pytest.mark.parametrize(
    ("client", "gone"),
    [("current", False), ("another", True), ("of another kind", False), ("none", False)],
)
def test_devices_that_are_gone_are_not_drawn(
    monkeypatch: pytest.MonkeyPatch, client: str, gone: bool
) -> None:
    current = Client()
    clients = {"current": current, "another": Client(), "of another kind": object(), "none": None}
    monkeypatch.setattr(jax, "devices", lambda platform: [SimpleNamespace(client=current)])
    devices = fake_devices(2)
    for device in devices:
        device.client = clients[client]
    mesh = Mesh(devices, ("x",))
    for given, what in (
        ((mesh,), "mesh"),
        ((NamedSharding(mesh, P("x")), (2,)), "sharding"),
        ((struct((2,), mesh, "x"),), "array"),
    ):
        if gone:
            with pytest.raises(mcnb.PictureError) as caught:
                mcnb.picture(*given)
            assert str(caught.value) == (
                f"The {what} contains devices that no longer exist: JAX was initialized again in "
                f"this process, for example by a heal. Create the {what} again, from jax.devices()"
            )
        else:
            assert "P0.1" in mcnb.picture(*given).text()


class Drawn:
    """Something that draws itself, as a cluster does, unless it is given too much."""

    def __init__(self, *titles: str) -> None:
        self.titles = titles
        self.given: Any = None

    def __mcnb_picture__(self, args: Any, options: Any, keywords: Any) -> list[Picture] | None:
        self.given = args, options, keywords
        return [Picture(Scene(title)) for title in self.titles] if self.titles else None


OPTIONS = {"name": "n", "bounds": True, "values": True, "ids": True, "full": True}


def test_what_draws_itself_is_asked_with_all_options(capsys: pytest.CaptureFixture[str]) -> None:
    one = Drawn("one")
    assert mcnb.picture(one, "x", order=True, **OPTIONS).text() == "one"
    assert one.given == (("x",), OPTIONS, {"order": True})
    two = Drawn("one", "two")
    mcnb.show(two, "x", order=True, **OPTIONS)
    assert two.given == one.given
    assert capsys.readouterr().out == "one\ntwo\n"
    with pytest.raises(mcnb.PictureError) as caught:
        mcnb.picture(two, "x")
    assert str(caught.value) == (
        "x differs between processes, so there are 2 pictures. mcnb.picture returns only one; "
        "mcnb.show shows them all"
    )
    with pytest.raises(mcnb.PictureError, match="A Drawn can't be drawn"):
        mcnb.picture(Drawn())


@pytest.mark.parametrize("shell", ["a notebook", "a terminal", "none"])
def test_in_a_notebook_pictures_are_displayed_and_elsewhere_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    shells = {
        "a notebook": SimpleNamespace(kernel=1),
        "a terminal": SimpleNamespace(),
        "none": None,
    }
    displayed: list[Any] = []
    monkeypatch.setattr(IPython.core.getipython, "get_ipython", lambda: shells[shell])
    monkeypatch.setattr(IPython.display, "display", displayed.append)
    mcnb.show(Drawn("one"))
    in_notebook = shell == "a notebook"
    assert displayed == ([Picture(Scene("one"))] if in_notebook else [])
    assert capsys.readouterr().out == ("" if in_notebook else "one\n")


def test_options_of_shardings_trees_and_meshes() -> None:
    sharding = NamedSharding(MESH, P("a"))
    lines = mcnb.picture(sharding, (8,), name="x", bounds=True, ids=True).text().splitlines()
    assert lines[0] == "x: an array[8]  P('a')"
    assert lines[2].split() == ["0:2", "2:4", "4:6", "6:8"]
    assert "TPU 2,3 · P1" in lines[4]
    assert mcnb.picture([struct((8,), MESH, "a")], name="state").scene.title == "state: 1 leaf"
    with pytest.raises(mcnb.PictureError, match="after a Mesh"):
        mcnb.picture(MESH, 8)
    with pytest.raises(mcnb.PictureError, match="has no option order"):
        mcnb.picture(AbstractMesh((2,), ("a",)), order=True)
    [leaf] = mcnb.picture([jax.ShapeDtypeStruct((2,), "float32")]).scene.parts
    assert leaf.rows == (("[0]", "ShapeDtypeStruct", "on the host", "", "", ""),)


def texts(array: Any, **options: Any) -> tuple[str, ...]:
    [grid] = mcnb.picture(array, values=True, **options).scene.parts
    assert isinstance(grid, Grid)
    [[cell]] = grid.rows
    assert isinstance(cell, Cell)
    return cell.lines


def test_all_values_of_an_array_are_shown_and_those_elsewhere_are_not_read() -> None:
    device = jax.devices()[0]
    small = jax.device_put(np.arange(6.0, dtype=np.float32).reshape(2, 3), device)
    by_id = f"{device.platform.upper()} {device.id} · P0"
    assert texts(small) == ("P0.0", "0. 1. 2.", "3. 4. 5.")
    assert texts(small, ids=True) == (by_id, "0. 1. 2.", "3. 4. 5.")
    most = jax.device_put(np.arange(256).reshape(4, 64) % 10, device)
    row = " ".join(str(n % 10) for n in range(64))
    assert texts(most)[1] == row
    assert len(texts(most)) == 5
    label = value_labels(small)
    elsewhere = Region(((0, 1), (0, 3)), (Device(1, 0), Device(1, 1)))
    assert label(elsewhere) == ("P1.0 P1.1", ELSEWHERE)
