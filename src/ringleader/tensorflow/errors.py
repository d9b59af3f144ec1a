"""The engine's errors as TensorFlow's, where operations run eagerly.

Within a graph TensorFlow makes its own of whatever Python raises: InvalidArgumentError of a `ValueError`,
UnknownError of a `HorovodInternalError`, whose name is then in the message.
"""

from __future__ import annotations

import tensorflow as tf

from ringleader.collectives.exceptions import MismatchError, NotInitializedError


class ArgumentError(tf.errors.InvalidArgumentError, ValueError):
    """This rank can see that an argument is wrong; the other ranks have not heard of the operation.

    It is made as TensorFlow makes its own, which AutoGraph relies on to add lines of the script to it.
    """


def argument_error(words: str) -> ArgumentError:
    """Return an error that says what is wrong."""
    return ArgumentError(None, None, words)


def tensorflow_error(error: ValueError | MismatchError) -> Exception:
    """Return FailedPreconditionError where ranks do not agree, `ArgumentError` for any other `ValueError`."""
    if isinstance(error, MismatchError):
        mismatch: Exception = tf.errors.FailedPreconditionError(None, None, str(error))
        return mismatch
    return error if isinstance(error, NotInitializedError | ArgumentError) else argument_error(str(error))
