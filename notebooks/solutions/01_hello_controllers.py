# %% 01.1
import jax

foreign = len(jax.devices()) - len(jax.local_devices())

# %% 01.2
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

devices = jax.local_devices()
first = jax.process_index() * len(devices)
squares = jax.make_array_from_single_device_arrays(
    (jax.process_count(), len(devices)),
    NamedSharding(
        jax.make_mesh((jax.process_count(), len(devices)), ("process", "local")),
        P("process", "local"),
    ),
    [jax.device_put(jnp.array([[(first + i) ** 2]]), d) for i, d in enumerate(devices)],
)

# %% 01.3
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((jax.process_count(), jax.local_device_count()), ("process", "local"))
first = jax.process_index() * jax.local_device_count()
whole = jax.make_array_from_single_device_arrays(
    mesh.devices.shape,
    NamedSharding(mesh, P("process", "local")),
    [jax.device_put(jnp.array([[first + i]]), d) for i, d in enumerate(jax.local_devices())],
)
own_sum = sum(int(shard.data.sum()) for shard in whole.addressable_shards)
