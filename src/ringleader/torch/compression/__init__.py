"""Gradients made smaller for the wire: one module per algorithm.

Path and the names ``Compression``, ``Compressor``, ``NoneCompressor`` and ``FP16Compressor`` are Horovod's.
"""

from ringleader.adapters.compression import Compressor, NoneCompressor
from ringleader.torch.compression.algorithms import BF16Compressor, Compression, FP16Compressor
from ringleader.torch.compression.powersgd import PowerSGD
from ringleader.torch.compression.topk import TopK

__all__ = [
    "BF16Compressor",
    "Compression",
    "Compressor",
    "FP16Compressor",
    "NoneCompressor",
    "PowerSGD",
    "TopK",
]
