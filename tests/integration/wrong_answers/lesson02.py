"""Plausible wrong answers to the exercises of lesson 02, each with the hint that it gets."""

from __future__ import annotations

FACTORS = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4, 2), ("row", "col"), axis_types=(AxisType.Explicit,) * 2)
left = jax.device_put(np.ones((8, 4)), NamedSharding(mesh, P("row", "col")))
right = jax.device_put(np.ones((4, 8)), NamedSharding(mesh, P("col", None)))
"""

WRONG = {
    "02.1": {
        # Along "c".
        "import jax\ncompany = [jax.process_index()]": (
            "a process is in its own company, and along 'a' it is not alone. "
            "Which box of the mesh is one step further along 'a'?"
        ),
        # Along "b".
        "import jax\nfirst = jax.process_index() // 2 * 2\ncompany = [first, first + 1]": (
            "those meet along 'b'. Along 'a', the position along 'b' and 'c' stays."
        ),
        "company = [0, 1, 2, 3]": (
            "all of them meet in a sum along all axes. Along 'a', only the first index changes."
        ),
        "company = 'P0 P2'": "company is a list of process indices.",
        # Devices, by their number in the list, where processes are asked for.
        "company = [0, 4]": (
            "draw it with mcnb.show(cube), find this process's boxes, and go along 'a' from "
            "there: only the first index changes."
        ),
    },
    "02.2": {
        "import jax, numpy as np\n"
        "backbone = jax.sharding.Mesh(np.array(jax.local_devices()[:1]), ('host',))": (
            "this mesh has devices of one process only. Take one of each process from "
            "jax.devices(), which is the same list everywhere."
        ),
        "import jax, numpy as np\n"
        "backbone = jax.sharding.Mesh(np.array(jax.devices()[::-1]), ('host',))": (
            "it has more than one device of a process. Take the first of each."
        ),
        # Backwards from the last: the second device of each process.
        "import jax, numpy as np\n"
        "backbone = jax.sharding.Mesh(np.array(jax.devices()[::-2]), ('host',))": (
            "these are not the first devices of all processes. In jax.devices(), how far is it "
            "from a process's first device to the next one's?"
        ),
        "import jax, numpy as np\n"
        "backbone = jax.sharding.Mesh(np.array(jax.devices()[::2]), ('host',))": (
            "the right devices, in another order: the last process comes first."
        ),
        "import jax, numpy as np\n"
        "backbone = jax.sharding.Mesh(np.array(jax.devices()[::2][::-1]), ('x',))": (
            "the devices are right. The mesh has one axis, and the task says what it is called."
        ),
        "import jax\nbackbone = jax.devices()[::2][::-1]": (
            "Mesh takes an array of devices and a tuple of names."
        ),
    },
    "02.3": {
        # The layout that the lesson chose.
        f"{FACTORS}scores = jnp.matmul(left, right, out_sharding=NamedSharding(mesh, P('row')))": (
            "out_sharding takes a NamedSharding. Which axis is each of the two dimensions split "
            "over?"
        ),
        # Auto axes, where the layout is right, but no type says so.
        f"""{FACTORS.replace("Explicit", "Auto")}
scores = jax.device_put(left @ right, NamedSharding(mesh, P("row", "col")))
""": (
            "the type knows nothing of a layout: this array's axes are Auto. Use the factors that "
            "lie on typed."
        ),
        # Laid out without multiplying.
        f"""{FACTORS}
scores = jax.device_put(np.ones((8, 8)), NamedSharding(mesh, P("row", "col")))
""": ("the layout is right, the numbers are not: take jnp.matmul(left, right, ...)."),
        "scores = 'float32[8@row,8@col]'": "scores is an array: the product of left and right.",
    },
    "02.4": {
        # All axes of a mesh that spans processes.
        """
def crossing(mesh):
    owners = {device.process_index for device in mesh.devices.flat}
    return list(mesh.axis_names) if len(owners) > 1 else []
""": (
            "take the process_index of each device in mesh.devices. An axis crosses if, on going "
            "along it, that number changes."
        ),
        # The first line along each axis only.
        """
import numpy as np
def crossing(mesh):
    found = []
    for axis, name in enumerate(mesh.axis_names):
        line = np.moveaxis(mesh.devices, axis, -1).reshape(-1, mesh.devices.shape[axis])[0]
        if len({device.process_index for device in line}) > 1:
            found.append(name)
    return found
""": (
            "an axis has many lines of devices along it. In the mesh 'uneven', the first line "
            "stays within a process, and another does not."
        ),
        # All axes that are longer than one.
        "def crossing(mesh):\n    return [name for name, n in mesh.shape.items() if n > 1]": (
            "the mesh 'single' has the devices of one process: nobody else to talk to."
        ),
        "def crossing(mesh):\n    ...": (
            "crossing is a function that takes a mesh and returns a list of names."
        ),
        "crossing = ['row']": (
            "crossing is a function that takes a mesh and returns a list of names."
        ),
    },
}
