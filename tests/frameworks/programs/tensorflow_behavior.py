"""What a TensorFlow script meets besides results: names, errors, threads, another life after `shutdown`."""

import sys
import threading
from contextlib import nullcontext
from importlib import import_module

import numpy as np
import tensorflow as tf
from refusals import raises

import ringleader.tensorflow as hvd
from ringleader.adapters.basics import HorovodBasics
from ringleader.adapters.util import extension_available, gpu_available

NAMES = {
    "tensorflow": "init shutdown is_initialized rank size local_rank local_size cross_rank cross_size "
    "is_homogeneous mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built "
    "ccl_built cuda_built rocm_built gpu_available start_timeline stop_timeline allreduce grouped_allreduce "
    "allgather grouped_allgather broadcast broadcast_ alltoall reducescatter grouped_reducescatter join "
    "size_op local_size_op rank_op local_rank_op process_set_included_op broadcast_variables "
    "broadcast_object broadcast_object_fn allgather_object Compression ProcessSet global_process_set "
    "add_process_set remove_process_set Average Sum Adasum Min Max Product HorovodInternalError "
    "handle_average_backwards_compatibility check_num_rank_power_of_2 _executing_eagerly _make_subgraph "
    "_cache vars_to_refs refs_to_vars util mpi_ops functions compression",
    "tensorflow.mpi_ops": "_basics _allreduce _grouped_allreduce allgather broadcast broadcast_ alltoall "
    "join size_op init rank size Sum Average handle_average_backwards_compatibility global_process_set",
    "tensorflow.functions": "broadcast_variables broadcast_object broadcast_object_fn allgather_object",
    "tensorflow.compression": "Compression Compressor NoneCompressor FP16Compressor",
    "tensorflow.util": "_executing_eagerly _make_subgraph _cache vars_to_refs refs_to_vars",
}
for path, names in NAMES.items():
    module = import_module(f"ringleader.{path}")
    assert not (lacking := [name for name in names.split() if not hasattr(module, name)]), (path, lacking)
assert hvd.mpi_ops._basics.rank is hvd.rank is HorovodBasics().rank is HorovodBasics(hvd.__file__).rank
assert extension_available("tensorflow") and not gpu_available("tensorflow") and not hvd.nccl_built()


raises(ValueError, "hvd.init()", hvd.rank)
hvd.init()
hvd.shutdown()
# A script may still decide about devices and threads. Each operation that waits in a function has one.
tf.config.threading.set_inter_op_parallelism_threads(4)
ONES = tf.ones(3)
raises(ValueError, "hvd.init()", hvd.allreduce, ONES)
assert int(hvd.process_set_included_op()) == -1


@tf.function
def facts():
    return hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op()


@tf.function
def total(x, **words):
    return hvd.allreduce(x, op=hvd.Sum, **words)


for _life in range(2):  # functions that were traced continue in another one
    hvd.init(process_sets="dynamic")
    RANK, SIZE = hvd.rank(), hvd.size()
    assert (total(ONES).numpy() == SIZE).all()
    numbers = [RANK, SIZE, hvd.local_rank(), hvd.local_size()]
    assert [int(one) for one in facts()] == numbers and [one.shape for one in facts()] == [()] * 4
    hvd.shutdown()
    raises((tf.errors.InvalidArgumentError, tf.errors.UnknownError), "hvd.init()", total, ONES)
hvd.init(process_sets="dynamic")

# arguments that are wrong here: the same in a graph
Wrong = (tf.errors.InvalidArgumentError, ValueError)


def check_arguments(run):
    for kind in Wrong:
        raises(kind, "Tensor type string is not supported", run(hvd.allreduce), tf.constant(["a"]))
        raises(kind, "Tensor type complex64 is not", run(hvd.allgather), tf.constant([1j], tf.complex64))
        raises(kind, "name of an operation is a string", run(hvd.allreduce), ONES, name=3)
        raises(kind, "name of an operation is a string", run(hvd.grouped_allreduce), [ONES], name=3)
        raises(kind, "1-D and int32", run(hvd.alltoall), ONES, splits=[1.0] * SIZE)
        raises(kind, "Average and Sum, not Max", run(hvd.reducescatter), ONES, op=hvd.Max)
    kind = tf.errors.InvalidArgumentError
    raises(kind, "without dimensions", run(hvd.allgather), tf.constant(1.0))
    raises(kind, "root rank", run(hvd.broadcast), ONES, root_rank=SIZE)
    raises(kind, "a multiple of", run(hvd.alltoall), tf.ones(SIZE + 1))
    raises(kind, "not registered", run(hvd.allreduce), ONES, process_set=hvd.ProcessSet([0]))


def in_function(operation):
    return lambda tensor, **words: tf.function(lambda tensor: operation(tensor, **words))(tensor)


if SIZE > 1:
    check_arguments(lambda operation: operation)
    check_arguments(in_function)
where = {"indices": tf.constant([RANK, 4]), "dense_shape": tf.constant([9, 3])}
slices = tf.IndexedSlices(tf.ones((2, 3)) * (RANK + 1), **where)
for words in ({"op": hvd.Adasum}, {"op": hvd.Min}, {"op": hvd.Product}, {"prescale_factor": 2.0}):
    raises(NotImplementedError, "IndexedSlices", hvd.allreduce, slices, **words)
    raises(NotImplementedError, "IndexedSlices", hvd.grouped_allreduce, [slices, ONES], **words)
Invalid = tf.errors.InvalidArgumentError
raises(Invalid, "prescale_factor is a number", hvd.allreduce, ONES, prescale_factor="2")
for variable, words in ((tf.Variable(["a"]), "type string is not"), (1.0, "only variables take over")):
    raises(Invalid, words, hvd.broadcast_variables, [variable], 0)
for call in (hvd.allreduce, hvd.reducescatter, hvd.DistributedGradientTape):
    raises(ValueError, "one of hvd.Compression, not 'fp16'", call, ONES, compression="fp16")
for optimizer in (None, "sgd", object(), tf.keras.optimizers.SGD):
    raises(TypeError, "wraps an optimizer of Keras or a tf", hvd.DistributedOptimizer, optimizer)


@tf.function
def name_twice(x):
    return hvd.allreduce(x, op=hvd.Sum, name="same"), hvd.allreduce(x * 2, op=hvd.Sum, name="same")


assert [one.numpy().tolist() for one in name_twice(ONES)] == [[SIZE] * 3, [2 * SIZE] * 3]
raises(ValueError, "supersedes", hvd.allreduce, ONES, average=True, op=hvd.Sum)

# sparse tensors
want = np.zeros((9, 3))
for rank in range(SIZE):
    want[rank] += rank + 1
    want[4] += rank + 1
for op, factor in ((hvd.Sum, 1), (hvd.Average, SIZE)):

    def reduce_slices(slices, op=op):
        return hvd.allreduce(slices, op=op), *hvd.grouped_allreduce([slices, ONES], op=op)

    for run in (reduce_slices, tf.function(reduce_slices)):
        one, other, dense = run(slices)
        np.testing.assert_allclose(tf.convert_to_tensor(one), want / factor, rtol=1e-6)
        np.testing.assert_allclose(tf.convert_to_tensor(other), want / factor, rtol=1e-6)
        assert (dense.numpy() == SIZE / factor).all()

for kind, wire in ((hvd.Compression.fp16, tf.float16), (hvd.Compression.bf16, tf.bfloat16)):
    small, context = kind.compress(ONES)
    assert small.dtype == wire and kind.decompress(small, context).dtype == tf.float32
    assert kind.compress(tf.range(3))[0].dtype == tf.int32
    got = hvd.allreduce(ONES, compression=kind, op=hvd.Sum)
    assert got.dtype == tf.float32 and (got.numpy() == SIZE).all()

# a tape on one rank alone: the others go the short way, and meet it
with tf.GradientTape() if RANK == 0 else nullcontext():
    assert (hvd.allreduce(ONES, op=hvd.Sum).numpy() == SIZE).all()
    assert hvd.broadcast(tf.fill([2], RANK), root_rank=SIZE - 1).numpy().tolist() == [SIZE - 1] * 2
    assert hvd.allreduce(tf.cast(ONES, tf.bfloat16), op=hvd.Sum).dtype == tf.bfloat16
    assert hvd.allreduce(tf.zeros((0, 3))).shape == (0, 3)

# ranks that differ are told, in operations of every form, and continue
if SIZE > 1:
    differs, many = tf.errors.FailedPreconditionError, [tf.Variable(1.0)] * (1 + RANK)
    raises(differs, "Mismatched", hvd.broadcast_, [tf.Variable(tf.ones(RANK))], 0)
    raises(differs, "Mismatched", hvd.broadcast, ONES, root_rank=RANK)
    raises(differs, "every rank waits", hvd.broadcast_variables, many, 0)
    raises(tf.errors.UnknownError, "HorovodInternalError: Mismatched", total, tf.ones(3 + RANK))

    @tf.function
    def different_graphs(x):
        return hvd.allreduce(x) + (hvd.allgather(x * 2) if RANK == 0 else hvd.allreduce(x + 1))

    raises(tf.errors.UnknownError, "every rank waits", different_graphs, ONES)

    @tf.function
    def more_operations(x):
        return hvd.allreduce(x) + (hvd.allreduce(x * 3) if RANK == 0 else x)

    if RANK == 0:
        raises(tf.errors.UnknownError, "every rank waits", more_operations, ONES)
    else:
        more_operations(ONES)
        raises(differs, "every rank waits", hvd.allreduce, ONES, name="next")
assert (hvd.allreduce(ONES, op=hvd.Sum).numpy() == SIZE).all()

# a name that is pending cannot be used again
told = []


def ask_twice():
    try:
        hvd.allreduce(ONES, name="twice")
    except tf.errors.InvalidArgumentError as error:
        told.append(str(error))
        hvd.broadcast(ONES, 0, name="go")


if SIZE > 1 and RANK == 0:
    both = [threading.Thread(target=ask_twice) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(told) == 1 and "twice" in told[0], told
elif SIZE > 1:
    hvd.broadcast(ONES, 0, name="go")
    raises(ValueError, "root rank", hvd.broadcast, ONES, root_rank=SIZE)  # as many as rank 0 asked for
    hvd.allreduce(ONES, name="twice")

# from several threads, in their own order on each rank
found = {}


def work(number):
    function = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name=f"thread{number}") + 0.0)
    for step in range(5):
        found[number, step] = float(function(tf.constant(float(number + step))))
        eager = hvd.allreduce(tf.constant(float(number)), op=hvd.Sum, name=f"eager{number}")
        assert float(eager) == number * SIZE


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads if RANK else threads[::-1]:
    thread.start()
for thread in threads:
    thread.join()
assert found == {(number, step): (number + step) * SIZE for number in range(4) for step in range(5)}

# in functions of Python that TensorFlow calls, in data sets, loops and branches
got = tf.function(lambda x: tf.py_function(lambda y: hvd.allreduce(y, op=hvd.Sum), [x], tf.float32))(ONES)
assert (got.numpy() == SIZE).all()
data = tf.data.Dataset.range(4).map(lambda x: hvd.allreduce(tf.cast(x, tf.float32), op=hvd.Sum))
assert [float(one) for one in data] == [at * SIZE for at in range(4)]


@tf.function
def loop(x):
    for _step in tf.range(3):
        x = hvd.allreduce(x, op=hvd.Sum)
        if tf.reduce_sum(x) > 0:
            x = x + hvd.allreduce(x, op=hvd.Average)
    return x


assert (loop(ONES).numpy() == (2 * SIZE) ** 3).all()
tf.config.run_functions_eagerly(True)
assert (total(ONES).numpy() == SIZE).all()
tf.config.run_functions_eagerly(False)

# results and variables are nobody else's
variable = tf.Variable(ONES * (RANK + 1))
before = variable.read_value()
first = hvd.allreduce(variable, op=hvd.Max)
second = hvd.allreduce(variable * 2, op=hvd.Max)
hvd.broadcast_variables([variable], SIZE - 1)
variable.assign_add(ONES)
hvd.broadcast_variables([variable], 0, inplace=True)
variable.assign_sub(ONES)
assert (first.numpy() == SIZE).all() and (second.numpy() == 2 * SIZE).all()
assert (variable.numpy() == SIZE).all() and (before.numpy() == RANK + 1).all()


# gradients of gradients, and of a group whose members are not all used
def second_derivative(x):
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            cubes = tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum) ** 3)
        slope = inner.gradient(cubes, x)
    return outer.gradient(slope, x)


def of_group(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        one, _other = hvd.grouped_allreduce([x, x * 2], op=hvd.Sum)
        total = tf.reduce_sum(one)
    return tape.gradient(total, x)


for run in (lambda function: function, tf.function):
    np.testing.assert_allclose(run(second_derivative)(ONES), 6.0 * SIZE**3)
    np.testing.assert_allclose(run(of_group)(ONES), SIZE)

if SIZE > 1:
    alone = hvd.add_process_set([0])
    included = [int(hvd.process_set_included_op(number)) for number in (0, alone.process_set_id, 99)]
    assert included == [1, int(RANK == 0), -3]
    assert int(hvd.size_op(alone.process_set_id)) == 1
    if RANK == 0:
        assert (hvd.allreduce(ONES, op=hvd.Sum, process_set=alone).numpy() == 1).all()
    else:
        raises(ValueError, f"Rank {RANK} is not a member", hvd.allreduce, ONES, process_set=alone)
    assert hvd.remove_process_set(alone)
assert hvd.broadcast_object_fn(root_rank=SIZE - 1)(RANK) == SIZE - 1
raises(tf.errors.InvalidArgumentError, "no process set", tf.function(lambda: hvd.size_op(99)))
assert "torch" not in sys.modules
hvd.join()
hvd.shutdown()
print("rank done", flush=True)
