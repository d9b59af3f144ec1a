"""Element types in which arrays travel. Names are Horovod's."""

from ringleader.common.compression import ArrayCompression as Compression
from ringleader.common.compression import BF16ArrayCompressor as BF16Compressor
from ringleader.common.compression import Compressor, NoneCompressor
from ringleader.common.compression import FP16ArrayCompressor as FP16Compressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]
