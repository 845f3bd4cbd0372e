"""Pictures in cells and of clusters: one answer from all processes, and never a hang."""

from __future__ import annotations

import pytest

import mcnb
from mcnb.messages import Display

SETUP = """
import jax, jax.numpy as jnp, numpy as np, mcnb
from jax.sharding import NamedSharding, PartitionSpec as P
k = jax.process_index()
mesh = jax.make_mesh((4, 2), ("a", "b"))
sharding = NamedSharding(mesh, P("a", "b"))
x = jax.make_array_from_process_local_data(sharding, np.arange(4.0).reshape(1, 4) + 4 * k)
"""
PICTURE = """\
x: float32[4,4]  P('a', 'b')
↓ dim 0: 4, split over 'a' (4)   → dim 1: 4, split over 'b' (2)
┌──────┬──────┐
│ P0.0 │ P0.1 │
├──────┼──────┤
│ P1.0 │ P1.1 │
├──────┼──────┤
│ P2.0 │ P2.1 │
├──────┼──────┤
│ P3.0 │ P3.1 │
└──────┴──────┘
On 8 devices of 4 processes: P0-3, float32[1,2] of 8 B on each; global: spans all devices."""
VALUES = """\
┌─────────┬─────────┐
│   P0.0  │   P0.1  │
│  0. 1.  │  2. 3.  │
├─────────┼─────────┤
│   P1.0  │   P1.1  │
│  4. 5.  │  6. 7.  │
├─────────┼─────────┤
│   P2.0  │   P2.1  │
│  8. 9.  │ 10. 11. │
├─────────┼─────────┤
│   P3.0  │   P3.1  │
│ 12. 13. │ 14. 15. │
└─────────┴─────────┘"""


@pytest.fixture
def prepared(cluster: mcnb.Cluster) -> mcnb.Cluster:
    cluster.run(SETUP).raise_for_errors()
    return cluster


def test_equal_pictures_are_folded_and_nothing_is_launched(prepared: mcnb.Cluster) -> None:
    result = prepared.run("mcnb.show(x, name='x')")
    assert result.text().strip() == f"[all 4]\n{PICTURE}"
    assert result.launches == ()
    [block] = result.blocks
    [shown] = block.items
    assert isinstance(shown, Display)
    assert set(shown.data) == {"image/svg+xml", "text/plain"}
    assert shown.data["text/plain"] == PICTURE
    assert shown.data["image/svg+xml"].startswith("<svg ")


def test_one_process_can_look_alone(prepared: mcnb.Cluster) -> None:
    result = prepared.run("if k == 2: mcnb.show(x, values=True)")
    assert result.ok
    assert result.text().startswith("[2]\n")
    assert result.text().count("elsewhere") == 6
    assert "│   8. 9.   │  10. 11.  │" in result.text()
    assert result.launches == ()


def test_a_picture_from_the_notebook(
    prepared: mcnb.Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    mcnb.show(prepared, "x")
    assert capsys.readouterr().out == f"{PICTURE}\n"
    mcnb.show(prepared, "x", values=True)
    assert VALUES in capsys.readouterr().out
    mcnb.show(prepared, "mesh")
    assert capsys.readouterr().out.startswith("Mesh 'a': 4, 'b': 2\n")
    mcnb.show(prepared, "{'x': x, 'n': k}")
    assert capsys.readouterr().out.startswith("{'x': x, 'n': k}: 2 leaves\n")
    mcnb.show(prepared, "x.sharding", (8, 4))
    assert capsys.readouterr().out.startswith("x.sharding: an array[8,4]  P('a', 'b')\n")
    mcnb.show(prepared, "jax.numpy.ones(3)", name="mine")
    assert [line for line in capsys.readouterr().out.splitlines() if "mine" in line] == [
        f"On P{k}: mine: float32[3]" for k in range(4)
    ]


def test_the_devices_of_a_cluster(
    prepared: mcnb.Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    mcnb.show(prepared)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 processes, 2 devices each, cpu"
    assert "process 3 │ P3.0 │ P3.1 │" in lines


def test_what_cannot_be_drawn(prepared: mcnb.Cluster) -> None:
    with pytest.raises(mcnb.CellError) as caught:
        mcnb.show(prepared, "np.ones(3)")
    assert str(caught.value) == (
        "all 4 processes raised PictureError: An ndarray is in host memory, not on a device. Move "
        "it to devices first: jax.device_put(x, sharding)"
    )
    with pytest.raises(mcnb.PictureError) as unnamed:
        mcnb.show(prepared, (4, 4))
    assert str(unnamed.value) == (
        "mcnb.show(cluster, (4, 4)): the argument after a cluster is the name of a variable. For "
        "example: mcnb.show(cluster, 'x')"
    )
    result = prepared.run("mcnb.show(3)")
    assert "PictureError: An int is in host memory, not on a device" in str(result.error())


def test_what_is_no_expression(prepared: mcnb.Cluster) -> None:
    for text, reason in (("", "invalid syntax"), ("z = 3", "invalid syntax")):
        with pytest.raises(mcnb.PictureError) as caught:
            mcnb.show(prepared, text)
        assert str(caught.value).startswith(
            f"{text!r} is neither a variable nor an expression: {reason}"
        )
    mcnb.show(prepared, "print('hidden') or x")
    assert prepared.run("1").text() == "[all 4] 1\n"


def test_a_picture_of_a_cluster_and_of_a_result(
    prepared: mcnb.Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mcnb.picture(prepared, "x").text() == PICTURE
    assert prepared.scenes("x")[3].title == "x: float32[4,4]  P('a', 'b')"
    with pytest.raises(mcnb.PictureError) as caught:
        mcnb.picture(prepared, "jax.numpy.ones(3)")
    assert str(caught.value) == (
        "jax.numpy.ones(3) differs between processes, so there are 4 pictures. mcnb.picture "
        "returns only one; mcnb.show shows them all"
    )
    result = prepared.run("float(x.sum())")
    assert mcnb.picture(result).text() == result.timeline().text()
    mcnb.show(result, order=True)
    assert capsys.readouterr().out == f"{result.timeline(order=True).text()}\n"
