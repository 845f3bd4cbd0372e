# %% 11.1
plans = (4, 12, 1), (1, 3, 4)


# %% 11.2
def join(environ, initialize):
    if "MASTER_ADDR" in environ:
        address = f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}"
        initialize(address, int(environ["WORLD_SIZE"]), int(environ["RANK"]))
    else:
        initialize()


# %% 11.3
from jax.sharding import NamedSharding, PartitionSpec as P


def place(shapes, mesh):
    # The last dimension of each is a multiple of 4.
    return {
        name: NamedSharding(mesh, P(*[None] * (len(struct.shape) - 1), "model"))
        for name, struct in shapes.items()
    }
