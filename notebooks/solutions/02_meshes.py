# %% 02.1
import jax

k = jax.process_index()
company = [k % 2, k % 2 + 2]

# %% 02.2
import jax
import numpy as np
from jax.sharding import Mesh

backbone = Mesh(np.array(jax.devices()).reshape(jax.process_count(), -1)[::-1, 0], ("host",))

# %% 02.3
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

# The lesson's mesh and factors.
typed = jax.make_mesh((4, 2), ("row", "col"), axis_types=(AxisType.Explicit,) * 2)
left = jax.device_put(np.ones((8, 4)), NamedSharding(typed, P("row", "col")))
right = jax.device_put(np.ones((4, 8)), NamedSharding(typed, P("col", None)))

scores = jnp.matmul(left, right, out_sharding=NamedSharding(typed, P("row", "col")))

# %% 02.4
import numpy as np


def crossing(mesh):
    owners = np.vectorize(lambda device: device.process_index)(mesh.devices)
    return [
        name
        for axis, name in enumerate(mesh.axis_names)
        if (owners != owners.take([0], axis)).any()
    ]
