"""Which GPUs this TensorFlow is built for."""

from __future__ import annotations

import tensorflow as tf


def nccl_built(verbose: bool = False) -> int:
    """Return 0: tensors of a GPU are brought to the host, and NCCL carries none."""
    return 0


def cuda_built(verbose: bool = False) -> bool:
    """Return whether this TensorFlow has tensors on GPUs of Nvidia."""
    return bool(tf.test.is_built_with_cuda())


def rocm_built(verbose: bool = False) -> bool:
    """Return whether this TensorFlow has tensors on GPUs of AMD."""
    return bool(tf.test.is_built_with_rocm())
