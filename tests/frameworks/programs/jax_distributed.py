"""A script of JAX's own: nothing in it knows of Ringleader, and no argument says where the ranks meet."""

import os

import jax

jax.distributed.initialize()

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

rank, size = jax.process_index(), jax.process_count()
assert (rank, size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
assert jax.local_device_count() == 1 and jax.device_count() == size
mesh = Mesh(np.array(jax.devices()), ("ranks",))
rows = NamedSharding(mesh, PartitionSpec("ranks"))
mine = np.full((1, 1000), rank + 1.0, "float32")
everything = jax.make_array_from_process_local_data(rows, mine)
total = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, PartitionSpec()))(everything)
assert float(total) == 1000 * size * (size + 1) / 2, total


@jax.jit
@jax.shard_map(mesh=mesh, in_specs=PartitionSpec("ranks"), out_specs=PartitionSpec())
def summed(part):
    return jax.lax.psum(part, "ranks")


assert (np.asarray(summed(everything).addressable_data(0)) == size * (size + 1) / 2).all()
jax.distributed.shutdown()
print("rank done", flush=True)
