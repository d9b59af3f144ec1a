"""Gradients made smaller for the wire: one module per algorithm.

Path and the names ``Compression``, ``Compressor``, ``NoneCompressor`` and ``FP16Compressor`` are Horovod's.
"""

from ringleader.torch.compression.compressor import (
    BF16Compressor,
    Compression,
    Compressor,
    FP16Compressor,
    NoneCompressor,
    PowerSGD,
    TopK,
)

__all__ = [
    "BF16Compressor",
    "Compression",
    "Compressor",
    "FP16Compressor",
    "NoneCompressor",
    "PowerSGD",
    "TopK",
]
