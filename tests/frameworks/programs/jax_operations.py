"""What scripts of JAX do besides the contract: trees, programs with branches, keys; and what is refused."""

import sys

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import refusals  # noqa: E402

import ringleader.jax as hvd  # noqa: E402

hvd.init(process_sets="dynamic")
RANK, SIZE = hvd.rank(), hvd.size()
TOTAL = SIZE * (SIZE + 1) // 2
assert hvd.is_initialized() and hvd.local_size() == SIZE and hvd.cross_size() == 1
BF16 = hvd.Compression.bf16
WAYS = {"eager": lambda function: function, "jit": jax.jit}


def check(got, want, *what):
    assert isinstance(got, jax.Array) and got.dtype == want.dtype, (what, got.dtype, want.dtype)
    assert got.shape == want.shape and (np.asarray(got) == np.asarray(want)).all(), (what, got, want)


def raises(kind, words, call, *arguments):
    refusals.raises(kind, words, lambda: jax.block_until_ready(call(*arguments)))


for way, compiled in WAYS.items():
    mine = {"whole": jnp.arange(4) * (RANK + 1), "half": jnp.full((2, 3), RANK, "bfloat16")}
    got = compiled(lambda tree: hvd.allreduce(tree, op=hvd.Sum))(mine)
    check(got["whole"], np.arange(4) * TOTAL, way, "leaves of several types")
    check(got["half"], jnp.full((2, 3), TOTAL - SIZE, "bfloat16"), way, "leaves of several types")
    assert float(compiled(lambda value: hvd.allreduce(value))(RANK + 1.0)) == TOTAL / SIZE
    got = compiled(lambda x: hvd.allreduce({"a": x, "b": (x, None)}, compression=BF16))(jnp.ones(3))
    assert got["a"].dtype == "float64" and (got["b"][0] == 1).all() and got["b"][1] is None
    assert hvd.allreduce({}) == {} and hvd.allreduce(None) is None
    # Gradients, of which integers have none.
    grad = jax.grad(lambda tree: (hvd.allreduce(tree, op=hvd.Sum)["w"] ** 2).sum(), allow_int=True)
    grads = compiled(grad)({"w": jnp.full((3,), RANK + 1.0), "n": jnp.arange(2)})
    check(grads["w"], np.full(3, 2.0 * TOTAL * SIZE), way, "gradient of allreduce")
    of_maximum = compiled(jax.grad(lambda x: hvd.allreduce(x, op=hvd.Max).sum()))
    raises(NotImplementedError, "no gradient", of_maximum, jnp.ones(2))
    # What this rank sees to be wrong: an exact class also while a program is traced.
    raises(ValueError, "have no average", compiled(hvd.allreduce), jnp.ones(3, bool))
    raises(ValueError, "complex64", compiled(hvd.allreduce), {"z": jnp.ones(3, "complex64")})
    raises(ValueError, "['z']", compiled(hvd.allreduce), {"z": jnp.ones(3, "complex64")})
    raises(ValueError, "without dimensions", compiled(hvd.allgather), jnp.ones(()))
    raises(ValueError, "root rank", compiled(lambda x: hvd.broadcast(x, SIZE)), jnp.ones(3))
    raises(ValueError, "vmap", jax.vmap(compiled(hvd.allreduce)), jnp.ones((3, 3)))
raises(ValueError, "not an array or a number", hvd.allreduce, {"a": "text"})
grad = jax.grad(lambda x: (hvd.allgather(x) * jnp.arange(TOTAL)).sum())(jnp.ones(RANK + 1))
check(grad, np.arange(float(TOTAL))[RANK * (RANK + 1) // 2 :][: RANK + 1], "gradient of uneven rows")
with_splits = jax.jit(lambda x: hvd.alltoall(x, splits=[1] * SIZE))
raises(ValueError, "cannot be compiled", with_splits, jnp.ones(SIZE))


# Many calls in one program, in branches and loops, and eager calls while programs run.
@jax.jit
def program(x):
    many = [hvd.allreduce(x + at, op=hvd.Sum, name=f"t{at}") for at in range(20)]
    looped, _ = jax.lax.scan(lambda carry, _: (hvd.allreduce(carry), None), x, None, length=3)
    chosen = jax.lax.cond(x[0] > 0, hvd.allreduce, lambda x: x, x)
    return many, looped, chosen


for _ in range(3):
    many, looped, chosen = program(jnp.full((1000,), RANK + 1.0))
    other = hvd.allreduce(jnp.float32(RANK + 1), op=hvd.Sum)
    assert float(other) == TOTAL
    for at, one in enumerate(many):
        check(one, np.full(1000, TOTAL + at * SIZE, "float64"), "many", at)
    check(looped, np.full(1000, TOTAL / SIZE), "scan")
    check(chosen, np.full(1000, TOTAL / SIZE), "cond")

# The same tree everywhere, objects, keys of random numbers, sets of ranks.
key = jax.random.key(RANK)
told = hvd.broadcast_parameters(
    {"w": jnp.full(3, RANK), "key": key, "lr": 0.5, "host": np.full(2, RANK)}, root_rank=SIZE - 1
)
assert (told["w"] == SIZE - 1).all() and (told["host"] == SIZE - 1).all() and told["lr"] == 0.5
assert (jax.random.key_data(told["key"]) == jax.random.key_data(jax.random.key(SIZE - 1))).all()
if SIZE > 1:
    alone = hvd.add_process_set([SIZE - 1])
    if RANK == SIZE - 1:
        summed = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=alone))
        check(summed(jnp.ones(3)), np.ones(3), "set")
    else:
        raises(ValueError, "not a member", lambda: hvd.allreduce(jnp.ones(3), process_set=alone))
if SIZE > 1:
    # Where ranks differ, all hear of it: exactly when eager, by its name from a program.
    differing = jnp.ones(3 + RANK)
    raises(hvd.HorovodInternalError, "allreduce", hvd.allreduce, differing)
    raises(jax.errors.JaxRuntimeError, "HorovodInternalError", jax.jit(hvd.allreduce), differing)
    raises(jax.errors.JaxRuntimeError, "as many rows on every rank", jax.jit(hvd.allgather), differing)
    raises(hvd.HorovodInternalError, "['of 1']", hvd.allreduce, {"a": 1.0, f"of {RANK}": 1.0})
    raises(jax.errors.JaxRuntimeError, "HorovodInternalError", jax.jit(hvd.allreduce), {f"of {RANK}": 1.0})
check(jax.jit(hvd.allreduce)(jnp.ones(3)), np.ones(3), "after errors")
hvd.barrier()
assert 0 <= hvd.join() < SIZE
hvd.shutdown()
assert "torch" not in sys.modules and "tensorflow" not in sys.modules
print("rank done", flush=True)
