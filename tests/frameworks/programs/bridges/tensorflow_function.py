"""TensorFlow in a `tf.function`."""

import tensorflow as tf

import ringleader.tensorflow as hvd
from bridges.tensorflow_eager import Bridge as Eager


class Bridge(Eager):
    mismatch = tf.errors.UnknownError

    def call(self, operation, given, **words):
        traced = tf.function(lambda given: getattr(hvd, operation)(given, **words))
        results = traced(given)
        known = traced.get_concrete_function(given).structured_outputs
        for result, output in zip(tf.nest.flatten(results), tf.nest.flatten(known), strict=True):
            assert output.shape.is_compatible_with(result.shape), (operation, output, result)
        return results

    def join(self):
        return int(tf.function(hvd.join)())

    def in_place(self, operation, array, **words):
        variable = tf.Variable(array)
        tf.function(lambda: getattr(hvd, operation)([variable], **words))()
        return variable.numpy()

    def gradient(self, function, array, weights):
        return tf.function(lambda x: self.of_tape(function, x, weights))(tf.constant(array)).numpy()

    @staticmethod
    def of_tape(function, x, weights):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(function(x) * weights)
        return tape.gradient(total, x)
