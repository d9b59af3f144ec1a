"""What all frameworks share: operations, gradients, elastic states; `ringleader.engine` moves the bytes.

Scripts import it as ``ringleader.common`` or ``horovod.common``, whose module names are Horovod's.
"""
