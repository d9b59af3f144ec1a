"""PyTorch's tensors as bytes: those of a commit, and checksums of parameters, on the host and on devices.

`adapters.commit_layout` has the same for NumPy's arrays, `adapters.consistency` compares parameters.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ringleader.adapters.commit_layout import (
    BLOCK,
    ArrayBytes,
    ArrayCodec,
    checksum_weights,
    combined,
)
from ringleader.adapters.consistency import Facts, ParameterKind, checksum

PACK_BYTES = 32 << 20
"""Bytes that are packed and summed up at once on a device: a few kernels, and three times the memory."""


@functools.cache
def _weights(device: torch.device) -> torch.Tensor:
    return torch.from_numpy(checksum_weights()).to(device)


def device_checksum(parts: Sequence[torch.Tensor], most: int = PACK_BYTES) -> int:
    """Return `checksum_of` the bytes of 1-D tensors, one behind the other, computed on their device.

    That takes a few kernels for each ``most`` bytes, a multiple of a block's, and one copy to the host.
    """
    sums: list[torch.Tensor] = []
    pack: list[torch.Tensor] = []
    room = most
    for part in parts:
        rest = part
        while rest.numel():
            pack.append(rest[:room])
            rest, room = rest[room:], room - pack[-1].numel()
            if not room:
                sums.append(_block_sums(pack))
                pack, room = [], most
    if pack:
        sums.append(_block_sums(pack))
    return combined(torch.cat(sums).tolist() if sums else [])


def _block_sums(pack: Sequence[torch.Tensor]) -> torch.Tensor:
    zeros = pack[0].new_zeros(-sum(one.numel() for one in pack) % (8 * BLOCK))
    words = torch.cat([*pack, zeros]).view(torch.int64).view(-1, BLOCK)
    return (words ^ (words >> 32)).mul_(_weights(words.device)).sum(1)


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceBytes(ArrayBytes):
    """The bytes of a tensor on a device."""

    @property
    def _flat(self) -> torch.Tensor:
        flat: torch.Tensor = self.array.view(-1).view(torch.uint8)
        return flat

    def read_into(self, target: memoryview, start: int) -> None:
        """See `ArrayBytes`."""
        over_bytes(target).copy_(self._flat[start : start + len(target)])

    def checksum(self, start: int, stop: int) -> int:
        """See `ArrayBytes`."""
        return device_checksum([self._flat[start:stop]])


class TensorCodec(ArrayCodec):
    """Takes tensors and NumPy's arrays apart."""

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
        tensor = value.detach().contiguous()
        kind = ArrayBytes if value.is_cpu else DeviceBytes
        return kind(spec=spec, nbytes=tensor.nbytes, address=tensor.data_ptr(), array=tensor)

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


# parameters of an optimizer


def tensor_facts(tensor: torch.Tensor) -> Facts:
    """Return the facts of one parameter."""
    plain = tensor.detach()
    if plain.is_floating_point():
        plain = plain.masked_fill(plain.isnan(), math.nan)
    norm = float(torch.linalg.vector_norm(plain.to("cpu", torch.float64)))
    return tensor_checksum([plain]), norm, tensor.requires_grad


def tensor_checksum(tensors: Sequence[torch.Tensor]) -> int:
    """Return the checksum of tensors by their values: how they are laid out in memory does not matter."""
    by_device: defaultdict[torch.device, list[torch.Tensor]] = defaultdict(list)
    for tensor in tensors:
        by_device[tensor.device].append(tensor.detach().reshape(-1).view(torch.uint8))
    host = checksum(one.numpy() for one in by_device.pop(torch.device("cpu"), []))
    return combined([host, *map(device_checksum, by_device.values())])


TENSORS = ParameterKind(
    checksum=tensor_checksum,
    facts=tensor_facts,
    cure="hvd.broadcast_parameters(model.state_dict(), root_rank=0)",
)
