"""Tapes whose gradients are those of all ranks: eagerly and in a `tf.function`, compared with plain sums."""

import warnings

import numpy as np
import tensorflow as tf
from refusals import raises

import ringleader.tensorflow as hvd
from ringleader.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from ringleader.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

hvd.init(process_sets="dynamic")
RANK, SIZE = hvd.rank(), hvd.size()
MEAN = (SIZE + 1) / 2
"""The mean over the ranks of rank + 1."""

vector, matrix = tf.Variable([1.0, 2.0, 3.0]), tf.Variable(tf.ones((3, 2)))
rows, apart = tf.Variable(tf.ones((SIZE + 1, 2))), tf.Variable(1.0)


def loss():
    """A loss whose gradients are rank + 1, rank, slices at rank and rank + 1, and none."""
    picked = tf.reduce_sum(tf.gather(rows, [RANK, RANK + 1]))
    return tf.reduce_sum(vector * (RANK + 1)) + tf.reduce_sum(matrix) * RANK + picked


def gradients(sources, wrap=hvd.DistributedGradientTape, **words):
    with tf.GradientTape() as tape:
        value = loss()
    return wrap(tape, **words).gradient(value, sources)


def both(**words):
    sources = {"dense": [vector, matrix], "rows": rows, "none": apart}
    eager = gradients(sources, **words)
    traced = tf.function(lambda: gradients(sources, **words))()
    for one, other in zip(tf.nest.flatten(eager), tf.nest.flatten(traced), strict=True):
        assert type(one).__name__ in (type(other).__name__, "EagerTensor"), (one, other)
        if one is not None:
            assert np.array_equal(dense(one), dense(other)), (one, other)
    return eager


def dense(gradient):
    return tf.convert_to_tensor(gradient).numpy()


def close(found, value):
    assert np.allclose(dense(found), value), (dense(found), value)


IN_ROWS = np.array([[min(at + 1, 2, SIZE + 1 - at) if SIZE > 1 else 1] * 2 for at in range(SIZE + 1)], float)
"""How many ranks pick each row."""
for op, factor in ((hvd.Average, 1), (hvd.Sum, SIZE)):
    found = both(op=op)
    close(found["dense"][0], [MEAN * factor] * 3)
    close(found["dense"][1], np.full((3, 2), (SIZE - 1) / 2 * factor))
    assert isinstance(found["rows"], tf.IndexedSlices) and found["none"] is None
    close(found["rows"], IN_ROWS / SIZE * factor)
found = both(sparse_as_dense=True, gradient_predivide_factor=2.0)
assert tf.is_tensor(found["rows"])
close(found["rows"], IN_ROWS / SIZE)
close(found["dense"][0], [MEAN] * 3)
for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
    found = both(compression=compression)["dense"][0]
    assert found.dtype == tf.float32
    close(found, [MEAN] * 3)
for groups in (1, 5, [[matrix], [vector]], [[matrix]]):
    close(both(groups=groups)["dense"][1], np.full((3, 2), (SIZE - 1) / 2))
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    both(num_groups=2)
assert any("num_groups" in str(one.message) for one in seen)
if SIZE & (SIZE - 1) == 0:
    together = hvd.allreduce(tf.fill([3], RANK + 1.0), op=hvd.Adasum)
    close(gradients([vector], op=hvd.Adasum)[0], dense(together))
close(gradients(vector), [MEAN] * 3)
with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
    value = loss()
for words in ({}, {"use_generic_names": True}):
    close(tape.gradient(value, [vector], **words)[0], [MEAN] * 3)
assert isinstance(tape, tf.GradientTape) and type(tape).__name__ == "GradientTape"

# Derivatives of higher order go through the exchange.
with tf.GradientTape() as outer:
    with tf.GradientTape() as inner:
        value = tf.reduce_sum(vector**3)
    (first,) = hvd.DistributedGradientTape(inner).gradient(value, [vector])
    total = tf.reduce_sum(first)
close(outer.gradient(total, vector), 6 * vector.numpy())


def local(scale):
    def wrap(tape):
        tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
        tape.register_local_source(vector)
        tape.register_local_source(rows)
        return tape

    return wrap


for scale in (True, False):
    found = both(wrap=local(scale))
    close(found["dense"][0], [(RANK + 1) / (SIZE if scale else 1)] * 3)
    close(found["dense"][1], np.full((3, 2), (SIZE - 1) / 2))
    assert isinstance(found["rows"], tf.IndexedSlices)
    assert found["rows"].values.shape[0] == 2

tape = local(True)(tf.GradientTape())
assert tape.scale_local_gradients  # to change it would change nothing
raises(AttributeError, "", setattr, tape, "scale_local_gradients", False)


class Layer:
    """What a tape needs to see of a layer of Keras."""

    trainable_weights = (vector,)


with tf.GradientTape() as tape:
    value = loss()
tape = hvd.PartialDistributedGradientTape(tape, local_layers=[Layer()])
mine, shared = tape.get_local_and_global_gradients(value, [vector, matrix])
assert mine[0][0] is vector and shared[0][0] is matrix and len(mine) == len(shared) == 1
close(mine[0][1], [(RANK + 1) / SIZE] * 3)

if SIZE > 1:
    some = hvd.add_process_set([0])
    close(both(process_set=some)["dense"][0], [RANK + 1] * 3)
    hvd.remove_process_set(some)


wrap = hvd.DistributedGradientTape
raises(ValueError, "gradient_predivide_factor", wrap, tape, gradient_predivide_factor=2.0, op=hvd.Sum)
raises(ValueError, "list of list", wrap, tape, groups=-1)
raises(ValueError, "list of list", wrap, tape, groups="all")
raises(ValueError, "only appear once", wrap, tape, groups=[[vector], [vector]])
raises(ValueError, "not list", wrap, [])
raises(ValueError, "must be of", hvd.PartialDistributedGradientTape, tape, local_layers=["dense"])
raises(NotImplementedError, "sparse_as_dense", gradients, [rows], op=hvd.Max)

# XLA does not compile an exchange, and what the user sees says what to do.
for refused in (lambda: gradients([vector]), lambda: hvd.allreduce(vector)):
    raises(NotImplementedError, "inner function", tf.function(refused, jit_compile=True))


@tf.function(jit_compile=True)
def compiled():
    with tf.GradientTape() as tape:
        value = loss()
    return tape.gradient(value, vector)


close(tf.function(lambda: hvd.allreduce(compiled()))(), [MEAN] * 3)


class Counts:
    """An optimizer as far as aggregation looks at it; a `tf.function` takes it as it takes an optimizer."""

    def __init__(self, iterations):
        self.iterations = iterations


# Several backward passes before one exchange.
for average in (False, True):
    for kind in (LocalGradientAggregationHelperEager, LocalGradientAggregationHelper):
        exchanges = []

        def exchange(grads, variables, exchanges=exchanges):
            exchanges.append(len(grads))
            return hvd.grouped_allreduce(grads, op=hvd.Average)

        helper = kind(
            backward_passes_per_step=3,
            allreduce_func=exchange,
            sparse_as_dense=True,
            average_aggregated_gradients=average,
        )
        helper.register_local_var(matrix)
        weight, own = tf.Variable([0.0]), tf.Variable(0, dtype=tf.int64)
        counts = Counts(own)

        def one_pass(value, helper=helper, weight=weight, own=own, counts=counts):
            variables = [weight, matrix, apart, rows]
            slices = tf.IndexedSlices(tf.ones((1, 2)), [RANK], [SIZE + 1, 2])
            found = helper.compute_gradients([value, tf.ones((3, 2)), None, slices], variables)

            def apply():
                weight.assign_add(found[0])
                return own.assign_add(1)

            helper.apply_gradients(apply, counts, list(zip(found, variables, strict=True)))
            return found

        step = one_pass if kind is LocalGradientAggregationHelper else tf.function(one_pass)
        divisor = 3 if average else 1
        for passes in range(1, 8):
            # Infinite gradients of one exchange leave nothing behind for the next.
            found = step(tf.constant([np.inf if passes < 4 else RANK + 1.0]))
            assert helper.counter.numpy() == passes % 3, (passes, helper.counter)
            assert own.numpy() == passes and found[2] is None
            if passes == 3:
                weight.assign([0.0])
            if passes == 6:
                close(weight, [3 * MEAN / divisor])
                close(found[1], np.full((3, 2), 3 / divisor / SIZE))
                picked = [[3 / divisor / SIZE * (at < SIZE)] * 2 for at in range(SIZE + 1)]
                close(found[3], picked)
# A gradient that is missing in some of the passes: the others count, and nothing stays for the next exchange.
first, second = tf.Variable(tf.zeros(2)), tf.Variable(tf.zeros(2))
helper = LocalGradientAggregationHelperEager(2, lambda grads, _variables: grads, False, False)
ten = tf.constant([10.0, 10.0])
for passes in ((None, ten), (ten, None), (None, ten), (ten, ten), (None, None)):
    total = sum(10.0 for one in passes if one is not None)
    for grad in passes:
        found = helper.compute_gradients([ten, grad], [first, second])
    close(found[0], [20.0, 20.0])
    close(found[1], [total, total])
raises(ValueError, "> 0", LocalGradientAggregationHelperEager, 0, None, False, False)
sparse = LocalGradientAggregationHelperEager(2, None, False, False)
slices = tf.IndexedSlices(tf.ones((1, 2)), [0], [SIZE + 1, 2])
raises(ValueError, "sparse_as_dense", sparse.compute_gradients, [slices], [rows])

if SIZE > 1:
    # Ranks with different models: an error on all of them, after which they can continue.
    sources = [vector, matrix][: 1 + RANK % 2]
    raises(tf.errors.FailedPreconditionError, "same model", gradients, sources)
    odd = tf.Variable(tf.ones(3 + RANK))
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(odd)
    tape = hvd.DistributedGradientTape(tape)
    raises(tf.errors.FailedPreconditionError, "Mismatched tensor shapes", tape.gradient, value, [odd])
    raises(tf.errors.UnknownError, "same model", tf.function(lambda: gradients(sources)))
close(gradients(vector), [MEAN] * 3)

# Differing numbers of steps: ranks that have no more join, and count as zero.
for step in range(2 + RANK):
    found = gradients(vector)
    close(found, [sum(one + 1 for one in range(SIZE) if step < 2 + one) / SIZE] * 3)
assert 0 <= hvd.join() < SIZE
hvd.shutdown()
print("rank done", flush=True)
