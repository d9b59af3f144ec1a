"""PyTorch's tensors as bytes of a commit; NumPy's arrays beside them."""

from __future__ import annotations

import ctypes
import functools
import warnings
from dataclasses import dataclass
from typing import Any

import torch

from ringleader.adapters.commit_layout import (
    BLOCK,
    ArrayBytes,
    NumpyCodec,
    checksum_of,
    checksum_weights,
    combined,
)

PIECE = 64 << 20
"""Bytes of a tensor that are multiplied at once where it is: so much memory that takes."""


@functools.cache
def _weights(device: torch.device) -> torch.Tensor:
    return torch.from_numpy(checksum_weights()).to(device)


def device_checksum(part: torch.Tensor) -> int:
    """Return the sum of `checksum_of` over bytes, a 1-D tensor of uint8, computed where they are."""
    whole, sums = part.numel() // 8 * 8, []
    weights = _weights(part.device)
    for start in range(0, whole, PIECE):
        piece = part[start : min(start + PIECE, whole)]
        if piece.storage_offset() % 8:  # a view into a larger tensor, which has no words there
            piece = piece.clone()
        words = piece.view(torch.int64)
        words = words ^ (words >> 32)
        full = words.numel() // BLOCK * BLOCK
        sums.append((words[:full].view(-1, BLOCK) * weights).sum(1))
        if full < words.numel():
            sums.append((words[full:] * weights[: words.numel() - full]).sum(0, keepdim=True))
    found = torch.cat(sums).tolist() if sums else []
    return combined([*found, int.from_bytes(bytes(part[whole:].tolist()), "little")])


@dataclass(frozen=True, kw_only=True)
class TensorBytes:
    """The bytes of a tensor, on whatever device it is."""

    spec: tuple[Any, ...]
    """``("torch", element type, shape, device, whether it takes gradients)``."""
    tensor: torch.Tensor

    @property
    def nbytes(self) -> int:
        """See `ArrayBytes`."""
        return self.tensor.nbytes

    @property
    def flat(self) -> torch.Tensor:
        """Return the bytes, 1-D."""
        return self.tensor.view(-1).view(torch.uint8)

    def read_into(self, target: memoryview, start: int) -> None:
        """See `ArrayBytes`."""
        if not self.tensor.is_cpu:
            over_bytes(target).copy_(self.flat[start : start + len(target)])
        elif len(target):  # a tenth of what views cost, which counts where tensors are small
            address = ctypes.addressof(ctypes.c_char.from_buffer(target))
            ctypes.memmove(address, self.tensor.data_ptr() + start, len(target))

    def checksum(self, start: int, stop: int) -> int:
        """See `ArrayBytes`."""
        part = self.flat[start:stop]
        if part.device.type == "cpu":
            return checksum_of(part.numpy().data)
        return device_checksum(part)


class TensorCodec(NumpyCodec):
    """Takes tensors and NumPy's arrays apart; see `ringleader.adapters.commit_layout.ArrayCodec`."""

    def take(self, value: Any) -> ArrayBytes | None:
        """Return the bytes of a dense tensor or an array; other tensors are pickled."""
        if type(value) is not torch.Tensor:
            return super().take(value)
        if value.layout is not torch.strided or value.is_quantized or value.is_meta or value.is_complex():
            return None
        if value.requires_grad and not value.is_leaf:
            return None
        device = "cpu" if value.is_cpu else str(value.device)
        spec = ("torch", value.dtype, tuple(value.shape), device, value.requires_grad)
        return TensorBytes(spec=spec, tensor=value.detach().contiguous())

    def make(self, spec: tuple[Any, ...], memory: memoryview, *, copy: bool) -> Any:
        """Return a tensor on the device where it was, or without ``copy`` one of the host over memory."""
        if spec[0] != "torch":
            return super().make(spec, memory, copy=copy)
        _kind, dtype, shape, device, requires_grad = spec
        tensor = over_bytes(memory).view(dtype).view(shape)
        if not copy:
            return tensor
        own = tensor.clone() if device == "cpu" else tensor.to(device, copy=True)
        return own.requires_grad_(requires_grad)


def over_bytes(memory: memoryview) -> torch.Tensor:
    """Return a tensor of bytes over memory, which the caller does not write into where it is read only."""
    if not len(memory):
        return torch.empty(0, dtype=torch.uint8)
    if not memory.readonly:
        return torch.frombuffer(memory, dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # there are no tensors that are only read
        return torch.frombuffer(memory, dtype=torch.uint8)
