# %% 03.1
shapes = [(4, 12), (16, 6), (2, 24), (16, 24)]

# %% 03.2
import jax

k = jax.process_index()
bounds = ((12, 24), (3 * k, 3 * k + 3))

# %% 03.3
import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
striped = jax.device_put(np.zeros((4, 16)), NamedSharding(mesh, P(None, ("b", "a"))))

# %% 03.4
import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
array = jax.device_put(np.zeros((16, 8), np.float32), NamedSharding(mesh, P("b")))
part = sum(shard.data.nbytes for shard in array.addressable_shards)
kept = (array, part * jax.process_count())
