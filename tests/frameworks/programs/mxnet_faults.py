"""What cannot be exchanged is refused with words on the rank that asks, or on all ranks where they differ."""

import mxnet as mx
import numpy as np
import refusals

import ringleader.mxnet as hvd
from ringleader.mxnet import mpi_ops


def raises(kinds, words, call, *arguments, **more):
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        refusals.raises(kind, words, call, *arguments, **more)


REFUSED = (mx.base.MXNetError, ValueError)
"""Both classes, each of which catches what a rank's own arguments bring."""
ones = mx.nd.ones((4, 3))
raises(ValueError, "use hvd.init()", hvd.allreduce, ones)
raises(ValueError, "use hvd.init()", hvd.rank)
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
assert mpi_ops._basics.size() == SIZE and mpi_ops._basics.Sum is hvd.Sum


class OnGpu(mx.nd.NDArray):
    """Stands for an array on a GPU, which nothing here has."""

    __slots__ = ()

    @property
    def context(self):
        return mx.gpu(1)


on_gpu = mx.nd.ones((4, 3))
on_gpu.__class__ = OnGpu

# arguments
for operation in (hvd.allreduce, hvd.allreduce_, hvd.allgather, hvd.alltoall, hvd.reducescatter):
    raises(REFUSED, "not an array of MXNet's", operation, np.ones(3))
    raises(REFUSED, "gpu(1) is not supported", operation, on_gpu)
    raises(REFUSED, "row_sparse", operation, mx.nd.sparse.zeros("row_sparse", (3, 4)))
raises(REFUSED, "not an array of MXNet's", hvd.broadcast, "words", root_rank=0)
raises(REFUSED, "not an array of MXNet's", hvd.grouped_allreduce, [ones, None])
raises(REFUSED, "gpu(1) is not supported", hvd.grouped_allgather, [ones, on_gpu])
raises(REFUSED, "is a string", hvd.allreduce, ones, name=3)
raises(REFUSED, "root rank", hvd.broadcast, ones, root_rank=SIZE)
raises(REFUSED, "entries for", hvd.alltoall, ones, [1] * (SIZE + 1))
raises(REFUSED, "do not fit", hvd.alltoall, ones, [5] * SIZE)
raises(REFUSED, "32-bit", hvd.alltoall, ones, mx.nd.ones(SIZE))
raises(REFUSED, "list of numbers", hvd.alltoall, ones, [[1] * SIZE])
raises(REFUSED, "without dimensions", hvd.reducescatter, mx.nd.array(3.0))
raises(REFUSED, "not registered", hvd.allreduce, ones, process_set=hvd.ProcessSet([0]))
raises(ValueError, "Please provide only one", hvd.allreduce, ones, average=True, op=hvd.Sum)
raises(ValueError, "99", hvd.allreduce, ones, op=99)
raises(hvd.HorovodInternalError, "Average and Sum", hvd.reducescatter, ones, op=hvd.Max)
raises(REFUSED, "invalid params", hvd.broadcast_parameters, [ones])
raises(REFUSED, "prefix is a string", hvd.broadcast_parameters, {}, prefix=3)
raises(REFUSED, "is not an optimizer", hvd.DistributedOptimizer, "sgd")
sgd = mx.optimizer.create("sgd")
raises(REFUSED, "already", hvd.DistributedOptimizer, hvd.DistributedOptimizer(sgd))
raises(REFUSED, "num_groups", hvd.DistributedOptimizer, sgd, num_groups=-1)
raises(REFUSED, "predivide", hvd.DistributedOptimizer, sgd, gradient_predivide_factor=0)
assert hvd.grouped_allreduce([]) == hvd.grouped_allgather([]) == hvd.grouped_reducescatter([]) == []


def net(*, devices=(0,), sparse=False):
    """A layer, and an embedding if ``sparse``."""
    one = mx.gluon.nn.HybridSequential()
    one.add(mx.gluon.nn.Embedding(5, 2, sparse_grad=True) if sparse else mx.gluon.nn.Dense(2, in_units=3))
    one.initialize(ctx=[mx.cpu(device) for device in devices])
    return one.collect_params()


trainer = hvd.DistributedTrainer
raises(REFUSED, "2 devices", trainer, net(devices=(0, 1)), "sgd")
raises(REFUSED, "is sparse", trainer, net(sparse=True), "sgd")
raises(REFUSED, "prefix is a string", trainer, net(), "sgd", prefix=3)
raises(REFUSED, "compression", trainer, net(), "sgd", compression="fp16")
raises(ValueError, "Cannot find optimizer", trainer, net(), "no such optimizer")

# ranks that differ
if SIZE > 1:
    told = hvd.HorovodInternalError
    raises(told, "Mismatched", hvd.allreduce, mx.nd.ones(3 + RANK), name="shape")
    raises(told, "Mismatched", hvd.allreduce, mx.nd.ones(3, dtype="int32" if RANK else "int64"), name="type")
    raises(told, "Mismatched", hvd.broadcast, ones, root_rank=RANK % 2)
    raises(told, "Mismatched", hvd.allreduce if RANK else hvd.allgather, ones, name="kind")
    raises(told, "Mismatched", hvd.allreduce_, ones, name=f"name {RANK}")


# gradients are known by the parameters' names where ranks have the same ones, else by their numbers
def step(learner, layer, inputs):
    with mx.autograd.record():
        loss = layer(mx.nd.ones((1, inputs))).sum()
    loss.backward()
    learner.step(1)


for groups, extra in ((0, False), (2, False), (0, True)):
    if extra and RANK:
        mx.gluon.nn.Dense(1)  # Gluon counts it
    named = {} if extra else {"prefix": "head_"}
    layer = mx.gluon.nn.Dense(2, use_bias=False, in_units=3 + RANK, **named)
    layer.initialize()
    learner = hvd.DistributedTrainer(layer.collect_params(), "sgd", num_groups=groups)
    if SIZE > 1:
        said = "tensor shapes for 'allreduce.0'" if extra else "tensor shapes for 'allreduce.head_weight'"
        raises(told, said, step, learner, layer, 3 + RANK)
    else:
        step(learner, layer, 3)

# a model of which each rank uses another part
table = [mx.gluon.nn.Dense(1, in_units=2, use_bias=False) for _ in range(SIZE + 1)]
params = {}
for at, layer in enumerate(table):
    layer.initialize(mx.init.One())
    params[f"{at}"] = layer.weight
learner = hvd.DistributedTrainer(params, "sgd", {"learning_rate": 1.0})
for _step in range(3):
    with mx.autograd.record():
        loss = table[RANK](mx.nd.ones((1, 2))).sum()
    loss.backward()
    learner.step(1, ignore_stale_grad=True)
for layer in table[:SIZE]:  # each was used by one rank
    assert np.allclose(layer.weight.data().asnumpy(), 1 - 3 / SIZE, atol=1e-6), layer.weight.data()
assert (table[SIZE].weight.data().asnumpy() == 1).all()

# an array that MXNet is still computing, and one that it reads while it is reduced
busy = mx.nd.ones((300, 300))
for _ in range(5):
    busy = mx.nd.dot(busy, mx.nd.ones((300, 300))) / 300
copy = busy + 1
hvd.allreduce_(busy, op=hvd.Sum)
assert (copy.asnumpy() == 2).all() and (busy.asnumpy() == SIZE).all()
# a part of an array, in place
whole = mx.nd.zeros((4, 3))
hvd.broadcast_(whole[1:3], root_rank=0)
hvd.allreduce_(whole[1:3] + 1, op=hvd.Sum)
part = whole[1:3]
part[:] = 1
hvd.allreduce_(part, op=hvd.Sum)
assert whole.asnumpy().sum(axis=1).tolist() == [0, 3 * SIZE, 3 * SIZE, 0]
assert hvd.allreduce(mx.nd.ones(3, ctx=mx.cpu(1))).context == mx.cpu(1)
hvd.shutdown()
print("rank done", flush=True)
