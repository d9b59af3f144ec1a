"""Element types in which arrays travel. Names are Horovod's."""

from ringleader.adapters.compression import ArrayCompression as Compression
from ringleader.adapters.compression import BF16ArrayCompressor as BF16Compressor
from ringleader.adapters.compression import Compressor, NoneCompressor
from ringleader.adapters.compression import FP16ArrayCompressor as FP16Compressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]
