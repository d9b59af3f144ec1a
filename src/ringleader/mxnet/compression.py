"""Gradients made smaller for the wire. Path and names are Horovod's."""

from __future__ import annotations

from ringleader.adapters.compression import Compressor, NoneCompressor
from ringleader.adapters.compression import FP16ArrayCompressor as FP16Compressor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compression:
    """What a script can ask for."""

    none = NoneCompressor
    """Send gradients as they are."""
    fp16 = FP16Compressor
    """Send floating-point gradients as float16."""
