"""TensorFlow: states of variables, eagerly and in a session; failures of operations in a graph."""

import sys

import numpy
import tensorflow as tf
from refusals import raises

import ringleader.tensorflow as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()

if sys.argv[1] == "session":
    tf.compat.v1.disable_eager_execution()
    session = tf.compat.v1.InteractiveSession()
    variables = [tf.compat.v1.Variable(numpy.full((5, 7), RANK + 1.0)), tf.compat.v1.Variable(RANK)]
    session.run(tf.compat.v1.global_variables_initializer())
    state = hvd.elastic.TensorFlowState(session=session, epoch=10 + RANK)

    def values():
        return session.run(variables)

    def change(amount):
        for variable, value in zip(variables, values(), strict=True):
            variable.load(value + amount, session)
else:
    variables = [tf.Variable(numpy.full((5, 7), RANK + 1.0)), tf.Variable(RANK)]
    state = hvd.elastic.TensorFlowState(variables, epoch=10 + RANK)

    def values():
        return [one.numpy() for one in variables]

    def change(amount):
        for variable in variables:
            variable.assign(variable + tf.cast(amount, variable.dtype))


def holds(number):
    first, second = values()
    assert numpy.array_equal(first, numpy.full((5, 7), number)), first
    assert second == number - 1, second


state.sync()
holds(1)
assert state.epoch == 10
change(1)
state.restore()
holds(1)
change(2)
state.epoch = 11
state.commit()
change(5)
state.epoch = 12
state.restore()
holds(3)
assert state.epoch == 11

if sys.argv[1] == "eager":

    @hvd.elastic.run
    def train(state):
        @tf.function
        def step():
            return hvd.allreduce(tf.ones(3) * hvd.rank(), op=hvd.Sum, name="sum")

        step()

        @tf.function
        def broken():
            def refuse():
                raise hvd.HorovodInternalError("rank 1 has ended")

            return tf.py_function(refuse, [], tf.float32)

        broken()

    raises(hvd.HorovodInternalError, "rank 1 has ended", train, state)
print("rank done", flush=True)
