# %% 10.1
again = (16, 9)

# %% 10.2
between_deaths = 200 * 24 * 3600 / 400
every = round((2 * 24 * between_deaths) ** 0.5 / 2)

# %% 10.3
import orbax.checkpoint as ocp


def run(manager, update, w, start, until):
    for step in range(start, until):
        w = update(w, step)
        done = step + 1
        if done % 4 == 0:
            manager.save(done, args=ocp.args.StandardSave({"w": w}))
    return w


# %% 10.4
import jax
import orbax.checkpoint as ocp


def last_good(path, initial, bad):
    with ocp.CheckpointManager(path) as manager:
        good = [step for step in manager.all_steps() if step < bad]
        if not good:
            return 0, initial
        struct = jax.ShapeDtypeStruct
        like = jax.tree.map(lambda x: struct(x.shape, x.dtype, sharding=x.sharding), initial)
        return max(good), manager.restore(max(good), args=ocp.args.StandardRestore(like))
