"""Every operation of ringleader.jax, eagerly and compiled, on trees, against NumPy; and what is refused."""

import sys

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import ringleader.jax as hvd  # noqa: E402

hvd.init(process_sets="dynamic")
RANK, SIZE = hvd.rank(), hvd.size()
TOTAL = SIZE * (SIZE + 1) // 2
assert hvd.is_initialized() and hvd.local_size() == SIZE and hvd.cross_size() == 1
DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool")
WAYS = {"eager": lambda function: function, "jit": jax.jit}


def brought(rank, shape, dtype):
    """What a rank brings: small integers, so that sums are exact in every type."""
    drawn = np.random.default_rng([rank, *shape]).integers(0, 3, shape)
    return jnp.asarray(drawn.astype("bool" if dtype == "bool" else "int8")).astype(dtype)


def check(got, want, *what):
    assert isinstance(got, jax.Array) and got.dtype == want.dtype, (what, got.dtype, want.dtype)
    assert got.shape == want.shape and (np.asarray(got) == np.asarray(want)).all(), (what, got, want)


def raises(kind, words, call, *arguments):
    try:
        jax.block_until_ready(call(*arguments))
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)


WEIGHTS = jnp.repeat(jnp.arange(SIZE) + 1.0, 2)
for way, compiled in WAYS.items():
    trees = [{dtype: brought(one, (4, 3), dtype) for dtype in DTYPES} for one in range(SIZE)]
    everyones = {dtype: [np.asarray(tree[dtype]) for tree in trees] for dtype in DTYPES}
    mine = trees[RANK]
    for op, fold in (
        (hvd.Sum, np.add),
        (hvd.Min, np.minimum),
        (hvd.Max, np.maximum),
        (hvd.Product, np.multiply),
    ):
        got = compiled(lambda tree, op=op: hvd.allreduce(tree, op=op))(mine)
        for dtype, arrays in everyones.items():
            want = arrays[0]
            for array in arrays[1:]:
                want = fold(want, array)
            check(got[dtype], want, way, op, dtype)
    for root in range(SIZE):
        got = compiled(lambda tree, root=root: hvd.broadcast(tree, root))(mine)
        for dtype, arrays in everyones.items():
            check(got[dtype], arrays[root], way, "broadcast", dtype)
    got = compiled(hvd.allgather)(mine)
    for dtype, arrays in everyones.items():
        check(got[dtype], np.concatenate(arrays), way, "allgather", dtype)
    floats = {dtype: mine[dtype] for dtype in DTYPES if dtype != "bool"}
    got = compiled(lambda tree: hvd.reducescatter(tree, op=hvd.Sum))(floats)
    for dtype in floats:
        want = everyones[dtype][0]
        for array in everyones[dtype][1:]:
            want = want + array
        check(got[dtype], np.array_split(want, SIZE)[RANK], way, "reducescatter", dtype)
    full = [brought(one, (2 * SIZE, 2), "float32") for one in range(SIZE)]
    got = compiled(hvd.alltoall)(full[RANK])
    want = [np.asarray(theirs)[2 * RANK : 2 * RANK + 2] for theirs in full]
    check(got, np.concatenate(want), way, "alltoall")
    # Shapes: scalars, nothing, a view that is not contiguous, a large one, numbers of Python.
    for value in (jnp.float32(RANK + 1), jnp.zeros((0, 3)), jnp.full((3_000_000,), RANK + 1.0)):
        got = compiled(lambda value: hvd.allreduce(value, op=hvd.Sum))(value)
        check(got, np.full(value.shape, TOTAL, value.dtype), way, value.shape)
    turned = jnp.arange(12.0).reshape(3, 4).T * (RANK + 1)
    got = compiled(lambda value: hvd.allreduce(value, op=hvd.Sum))(turned)
    check(got, np.arange(12.0).reshape(3, 4).T * TOTAL, way, "transposed")
    assert float(compiled(lambda value: hvd.allreduce(value))(RANK + 1.0)) == TOTAL / SIZE
    got = compiled(lambda x: hvd.allreduce({"a": x, "b": (x, None)}, compression=hvd.Compression.bf16))(
        jnp.ones(3)
    )
    assert got["a"].dtype == "float64" and (got["b"][0] == 1).all() and got["b"][1] is None
    scaled = compiled(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0))
    check(scaled(jnp.ones(3)), np.full(3, 2.0 * SIZE), way, "scaled")
    assert hvd.allreduce({}) == {} and hvd.allreduce(None) is None
    # Gradients, of which integers have none.
    grads = compiled(
        jax.grad(lambda tree: (hvd.allreduce(tree, op=hvd.Sum)["w"] ** 2).sum(), allow_int=True)
    )({"w": jnp.full((3,), RANK + 1.0), "n": jnp.arange(2)})
    check(grads["w"], np.full(3, 2.0 * TOTAL * SIZE), way, "gradient of allreduce")
    mean = (SIZE - 1) / 2 + 1
    grad = compiled(jax.grad(lambda x: (hvd.broadcast(x, 0) * (RANK + 1.0)).sum()))(jnp.ones(3))
    check(grad, np.full(3, 0.0 if RANK else mean), way, "gradient of broadcast")
    grad = compiled(jax.grad(lambda x: (hvd.allgather(x) * WEIGHTS).sum()))(jnp.ones(2))
    check(grad, np.full(2, RANK + 1.0), way, "gradient of allgather")
    grad = compiled(jax.grad(lambda x: (hvd.reducescatter(x) * (RANK + 1.0)).sum()))(jnp.ones(2 * SIZE + 1))
    check(
        grad,
        np.concatenate(
            [
                np.full(len(part), at + 1.0)
                for at, part in enumerate(np.array_split(np.ones(2 * SIZE + 1), SIZE))
            ]
        ),
        way,
        "gradient of reducescatter",
    )
    grad = compiled(jax.grad(lambda x: (hvd.alltoall(x) * (RANK + 1.0)).sum()))(jnp.ones(SIZE))
    check(grad, np.arange(SIZE) + 1.0, way, "gradient of alltoall")
    raises(
        NotImplementedError,
        "no gradient",
        compiled(jax.grad(lambda x: hvd.allreduce(x, op=hvd.Max).sum())),
        jnp.ones(2),
    )
    # What this rank sees to be wrong: an exact class also while a program is traced.
    raises(ValueError, "have no average", compiled(hvd.allreduce), jnp.ones(3, bool))
    raises(ValueError, "complex64", compiled(hvd.allreduce), {"z": jnp.ones(3, "complex64")})
    raises(ValueError, "['z']", compiled(hvd.allreduce), {"z": jnp.ones(3, "complex64")})
    raises(ValueError, "without dimensions", compiled(hvd.allgather), jnp.ones(()))
    raises(ValueError, "root rank", compiled(lambda x: hvd.broadcast(x, SIZE)), jnp.ones(3))
    raises(ValueError, "vmap", jax.vmap(compiled(hvd.allreduce)), jnp.ones((3, 3)))
raises(ValueError, "not an array or a number", hvd.allreduce, {"a": "text"})
uneven = hvd.allgather({"rows": jnp.full((RANK + 1, 2), RANK)})["rows"]
check(uneven, np.concatenate([np.full((one + 1, 2), one) for one in range(SIZE)]), "uneven rows")
grad = jax.grad(lambda x: (hvd.allgather(x) * jnp.arange(TOTAL)).sum())(jnp.ones(RANK + 1))
check(grad, np.arange(float(TOTAL))[RANK * (RANK + 1) // 2 :][: RANK + 1], "gradient of uneven rows")
rows, counts = hvd.alltoall(jnp.full((SIZE * (RANK + 1),), RANK), splits=[RANK + 1] * SIZE)
check(counts, np.arange(1, SIZE + 1, dtype="int32"), "received")
check(rows, np.concatenate([np.full(one + 1, one) for one in range(SIZE)]), "alltoall with splits")
raises(
    ValueError, "cannot be compiled", jax.jit(lambda x: hvd.alltoall(x, splits=[1] * SIZE)), jnp.ones(SIZE)
)


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
assert hvd.allgather_object({"rank": RANK}) == [{"rank": one} for one in range(SIZE)]
assert hvd.broadcast_object(RANK, 0) == 0
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
