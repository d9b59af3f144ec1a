"""TensorFlow in the graph of a session, as in scripts for TensorFlow 1."""

import numpy as np
import tensorflow as tf

import ringleader.tensorflow as hvd
from bridges.bridge import Bridge as Base


class Bridge(Base):
    hvd = hvd
    operations = Base.operations | {"broadcast_", "gradient"}
    mismatch = tf.errors.UnknownError

    def tensor(self, array):
        return array  # a constant of each graph

    def array(self, tensor):
        return np.asarray(tensor)

    def call(self, operation, given, **words):
        if tf.is_tensor(given):  # within `gradient`
            return getattr(hvd, operation)(given, **words)
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            results = getattr(hvd, operation)(tf.nest.map_structure(tf.constant, given), **words)
            found = session.run(results)
        for result, value in zip(tf.nest.flatten(results), tf.nest.flatten(found), strict=True):
            assert result.shape.is_compatible_with(np.shape(value)), (operation, result, np.shape(value))
        return found

    def join(self):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            return int(session.run(hvd.join()))

    def in_place(self, operation, array, **words):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            variable = tf.compat.v1.Variable(array, use_resource=False)
            assigned = getattr(hvd, operation)([variable], **words)
            session.run(variable.initializer)
            session.run(assigned)
            return session.run(variable)

    def gradient(self, function, array, weights):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            x = tf.constant(array)
            return session.run(tf.gradients(tf.reduce_sum(function(x) * weights), x)[0])
