"""One answer from n processes, and what crosses between them and the notebook."""

from __future__ import annotations

import re
import sys
import time

import numpy as np
import pytest

import mcnb
from mcnb.messages import Display


def test_processes_are_jax_controllers(cluster: mcnb.Cluster) -> None:
    result = cluster.run(
        "import jax\n(jax.process_index(), jax.process_count(), jax.local_device_count(),"
        " jax.device_count())"
    )
    assert result.ok
    assert result.value == {k: f"({k}, 4, 2, 8)" for k in range(4)}


def test_no_process_holds_a_port_that_it_does_not_use(cluster: mcnb.Cluster) -> None:
    source = """
import gc, socket
def serves(one):
    if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return True
    try:
        return bool(one.getpeername())
    except OSError:
        return False
sockets = [one for one in gc.get_objects() if isinstance(one, socket.socket)]
bound = [one for one in sockets if one.fileno() >= 0 and one.family == socket.AF_INET]
print([one for one in bound if one.getsockname()[1] and not serves(one)])"""
    assert cluster.run(source).text() == "[all 4] []\n"


def test_a_collective_gives_every_process_the_total(cluster: mcnb.Cluster) -> None:
    result = cluster.run("""
import jax, numpy as np, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4, 2), ("process", "local"))
own = np.full((1, 2), jax.process_index() + 1)
x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("process", "local")), own)
print(int(jnp.sum(x)))
""")
    assert result.text() == "[all 4] 20\n"
    assert result.stdout == dict.fromkeys(range(4), "20\n")
    assert result.stderr == dict.fromkeys(range(4), "")


def test_different_output_stands_in_order(cluster: mcnb.Cluster) -> None:
    result = cluster.run("""
import sys, jax
k = jax.process_index()
print("one for all")
print("mine is", k)
print("to the other stream", file=sys.stderr)
k // 2
""")
    assert result.text() == (
        "[all 4] one for all\n"
        "[0]     mine is 0\n[1]     mine is 1\n[2]     mine is 2\n[3]     mine is 3\n"
        "[all 4] to the other stream\n"
        "[0,1]   0\n[2,3]   1\n"
    )


def test_native_output_keeps_its_place_and_gloo_is_silent(cluster: mcnb.Cluster) -> None:
    # Fresh meshes make fresh Gloo contexts, which announce themselves on stdout.
    result = cluster.run("""
import os, jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
print("begin", end=" ")
devices = np.array(jax.devices()).reshape(4, 2)
for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
    mesh = Mesh(devices[order], ("a", "b"))
    ones = jax.jit(lambda: jax.numpy.ones((4, 2)), out_shardings=NamedSharding(mesh, P("a", "b")))()
    print(float(ones.sum()), end=" ")
print("middle")
os.write(1, b"from native code\\n")
os.system("echo from a child process")
print("end")
""")
    assert result.text() == (
        "[all 4] begin 8.0 8.0 middle\n"
        "        from native code\n        from a child process\n        end\n"
    )


def test_c_output_that_libc_holds_back_is_shown(cluster: mcnb.Cluster) -> None:
    result = cluster.run("import ctypes; ctypes.CDLL(None).printf(b'from C\\n');")
    assert result.text() == "[all 4] from C\n"


def test_rich_output_is_kept_and_folded(cluster: mcnb.Cluster) -> None:
    result = cluster.run("""
import matplotlib.pyplot as plt
from IPython.display import HTML, SVG, display
display(HTML("<b>bold</b>"))
display(SVG('<svg xmlns="http://www.w3.org/2000/svg"></svg>'))
plt.plot([1, 2]);
plt.show()
print("after")
""")
    assert result.ok, result.text()
    (block,) = result.blocks
    assert block.processes == (0, 1, 2, 3)
    html, svg, png, line = block.items
    assert isinstance(html, Display)
    assert html.data["text/html"] == "<b>bold</b>"
    assert isinstance(svg, Display)
    assert svg.data["image/svg+xml"].startswith("<svg")
    assert isinstance(png, Display)
    assert png.data["image/png"].startswith("iVBOR")
    assert getattr(line, "text", None) == "after\n"


def test_a_plot_left_open_is_shown_at_the_end_of_the_cell(cluster: mcnb.Cluster) -> None:
    result = cluster.run("import matplotlib.pyplot as plt\nplt.plot([1, 2]);")
    kinds = [set(item.data) for item in result.blocks[0].items if isinstance(item, Display)]
    assert {"image/png", "text/plain"} in kinds


def test_display_updates_and_clearing_reach_the_answer(cluster: mcnb.Cluster) -> None:
    result = cluster.run("""
from IPython.display import clear_output, display
print("gone")
clear_output()
handle = display({"text/plain": "first"}, raw=True, display_id=True)
handle.update({"text/plain": "second"}, raw=True)
""")
    assert result.text() == "[all 4] second\n"


def test_the_value_and_the_semicolon(cluster: mcnb.Cluster) -> None:
    assert cluster.run("6 * 7").value == dict.fromkeys(range(4), "42")
    assert cluster.run("6 * 7;").value == dict.fromkeys(range(4))
    assert cluster.run("x = 1").value == dict.fromkeys(range(4))


def test_equal_text_of_different_kind_is_not_equal(cluster: mcnb.Cluster) -> None:
    result = cluster.run("import jax\nprint(1) if jax.process_index() else 1")
    assert [block.processes for block in result.blocks] == [(0,), (1, 2, 3)]


def test_a_cell_on_some_processes(cluster: mcnb.Cluster) -> None:
    result = cluster.run("print('here')", processes="0,2-3")
    assert result.text() == "[0,2,3] here\n"
    assert sorted(result.stdout) == [0, 2, 3]


def test_await_magics_and_shell_commands_work(cluster: mcnb.Cluster) -> None:
    assert cluster.run("import asyncio\nawait asyncio.sleep(0)\n'awaited'").ok
    assert cluster.run("import asyncio\nasyncio.run(asyncio.sleep(0))").ok
    assert cluster.run("!echo shell").text() == "[all 4] shell\n"
    assert cluster.run("lines = !echo captured\nlines").text() == "[all 4] ['captured']\n"
    assert cluster.run("%%capture text\nprint('caught')").text() == ""


def test_threads_of_the_cell_print_into_it(cluster: mcnb.Cluster) -> None:
    result = cluster.run("""
import threading
thread = threading.Thread(target=print, args=("from a thread",))
thread.start(); thread.join()
""")
    assert result.text() == "[all 4] from a thread\n"


def test_bytes_written_to_the_stream_are_text(cluster: mcnb.Cluster) -> None:
    result = cluster.run("import sys\nsys.stdout.buffer.write('ü\\n'.encode());")
    assert result.text() == "[all 4] ü\n"


def test_pull_and_push(cluster: mcnb.Cluster) -> None:
    cluster.push({"n": 3, "a": np.arange(4)})
    cluster.run("import jax, jax.numpy as jnp\nk = jax.process_index()\nx = jnp.arange(n) + k")
    assert cluster.pull("n * k") == {0: 0, 1: 3, 2: 6, 3: 9}
    assert cluster.pull("k", processes=[1, 3]) == {1: 1, 3: 3}
    pulled = cluster.pull("{'x': x, 'a': a}")
    for k in range(4):
        assert isinstance(pulled[k]["x"], np.ndarray)
        np.testing.assert_array_equal(pulled[k]["x"], np.arange(3) + k)
        np.testing.assert_array_equal(pulled[k]["a"], np.arange(4))
    # Types that NumPy knows by ml_dtypes, alone and inside of something.
    pulled = cluster.pull("jnp.arange(4, dtype=jnp.bfloat16).reshape(2, 2)")
    assert (str(pulled[1].dtype), pulled[1].astype(int).tolist()) == ("bfloat16", [[0, 1], [2, 3]])
    pulled = cluster.pull("{'w': [jnp.ones(2, jnp.float8_e4m3fn), k]}")
    assert (str(pulled[3]["w"][0].dtype), pulled[3]["w"][1]) == ("float8_e4m3fn", 3)
    with pytest.raises(mcnb.CellError) as one_of_two:
        cluster.push({"n": 4, "reader": (line for line in "ab")})
    assert re.fullmatch(
        "`reader` can't be sent to the processes: cannot pickle '?generator'? objects?. Send "
        "numbers, texts and NumPy arrays, or create it in a cell that begins with %%mcjax",
        str(one_of_two.value),
    )
    assert cluster.pull("n") == dict.fromkeys(range(4), 3)


def test_pull_says_what_it_cannot_do(cluster: mcnb.Cluster) -> None:
    with pytest.raises(mcnb.CellError) as missing:
        cluster.pull("nothing_of_that_name")
    assert str(missing.value) == (
        "all 4 processes raised NameError: name 'nothing_of_that_name' is not defined"
    )
    cluster.run("""
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((8,), ("i",))
x = jax.jit(lambda: jnp.arange(8), out_shardings=NamedSharding(mesh, P("i")))()
""")
    with pytest.raises(mcnb.CellError) as spanning:
        cluster.pull("x")
    assert str(spanning.value) == (
        "all 4 processes raised ValueError: x is not fully addressable: this process holds only "
        "some of its shards. Pull one shard, for example x.addressable_shards[0].data, or first "
        "gather the array in a cell: jax.experimental.multihost_utils.process_allgather(x, "
        "tiled=True)"
    )
    with pytest.raises(mcnb.CellError) as unsendable:
        cluster.pull("lambda: 1 + (yield)" if False else "open('/dev/null')")
    why = (
        r"cannot pickle '(_io\.)?TextIOWrapper' (object|instances)"  # as versions of Python say it
    )
    assert re.fullmatch(
        "all 4 processes raised CellError: This value can't be sent to the notebook kernel: "
        f"{why}\\. Pull a part of it that can be sent, such as an array, a number or a text",
        str(unsendable.value),
    )
    with pytest.raises(mcnb.CellError) as bad_name:
        cluster.push({"not a name": 1})
    assert str(bad_name.value) == "'not a name' is not a valid variable name"


class Config:
    """A class of the notebook kernel, which the processes do not have."""


def test_classes_that_only_one_side_has(
    cluster: mcnb.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value is refused at once; the processes and their variables stay."""
    # As it is after the start; another test may have emptied the namespace.
    cluster.run("__name__ = '__main__'").raise_for_errors()
    cluster.run("class Setting: pass\nsetting, kept = Setting(), 7").raise_for_errors()
    with pytest.raises(mcnb.CellError) as unreadable:
        cluster.pull("setting")
    assert str(unreadable.value) == (
        "all 4 processes raised CellError: A value can't be read in the notebook kernel, because "
        "its class Setting is not defined there. Define it in a cell of the notebook kernel, too"
    )
    main = sys.modules["__main__"]
    monkeypatch.setattr(Config, "__module__", "__main__")
    monkeypatch.setattr(main, "Config", Config, raising=False)
    with pytest.raises(mcnb.CellError) as refused:
        cluster.push({"config": Config()})
    assert str(refused.value) == (
        "all 4 processes raised CellError: A value can't be read on this process, because its "
        "class Config is not defined there. Define it in a cell that begins with %%mcjax, too"
    )
    assert cluster.pull("kept") == dict.fromkeys(range(4), 7)
    # With the class on both sides, it works.
    cluster.run("class Config: pass").raise_for_errors()
    cluster.push({"config": Config()})
    assert cluster.run("type(config).__name__").text() == "[all 4] 'Config'\n"
    assert type(cluster.pull("config")[0]) is Config


def test_status_and_repr(cluster: mcnb.Cluster) -> None:
    assert cluster.status() == "4 processes x 2 CPU devices: ready"
    assert repr(cluster) == "<mcnb.Cluster: 4 processes x 2 CPU devices, ready>"


def test_a_second_start_says_so(cluster: mcnb.Cluster) -> None:
    with pytest.raises(mcnb.ClusterError) as twice:
        cluster.start()
    assert str(twice.value) == (
        "The cluster is already running, with 4 processes x 2 CPU devices. To restart it "
        "(variables are lost): %mcjax restart. To change its size, stop it first: %mcjax stop"
    )


def test_indices_are_the_same_after_a_restart(cluster: mcnb.Cluster) -> None:
    cluster.run("left = 1")
    cluster.restart()
    result = cluster.run("import jax\n(jax.process_index(), 'left' in globals())")
    assert result.value == {k: f"({k}, False)" for k in range(4)}


def test_the_environment_of_the_processes() -> None:
    with mcnb.Cluster(processes=1, devices_per_process=3, env={"MCNB_TEST": "yes"}) as one:
        result = one.run("import os, jax\n(os.environ['MCNB_TEST'], jax.device_count())")
        assert result.text() == "[0] ('yes', 3)\n"


def test_a_million_lines(cluster: mcnb.Cluster) -> None:
    count = 1_000_000
    result = cluster.run(f"print('\\n'.join(map(str, range({count}))))")
    assert result.stdout[3].count("\n") == count
    began = time.process_time()
    assert len(result.blocks) == 1
    assert time.process_time() - began < 20


@pytest.mark.parametrize("checked", [True, False])
def test_many_launches_that_nobody_waits_for(cluster: mcnb.Cluster, checked: bool) -> None:
    """With as many threads as cores, XLA's collectives would wait for each other for ever."""
    cluster.run(
        "import jax, jax.numpy as jnp, numpy as np\n"
        "from jax.sharding import AxisType, NamedSharding, PartitionSpec as P\n"
        "mesh = jax.make_mesh((8,), ('a',), axis_types=(AxisType.Auto,))\n"
        "x = jax.device_put(np.arange(16.0), NamedSharding(mesh, P('a')))\n"
        "f = jax.jit(jnp.sum)\n"
        "f(x)"
    ).raise_for_errors()
    result = cluster.run(
        "for _ in range(300):\n    y = f(x)\nprint(float(y))", checked=checked, timeout=280
    )
    assert result.stdout == dict.fromkeys(range(4), "120.0\n")
