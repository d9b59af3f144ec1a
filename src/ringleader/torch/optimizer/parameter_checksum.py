"""The checksum of an optimizer's parameters in PyTorch, on the host and on devices."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import torch

from ringleader.adapters.consistency import FACTOR, Facts, ParameterKind, checksum, signed

DEVICE_BYTES = 32 << 20
"""Bytes that are packed and summed up at once on a device: a few kernels, and three times the memory."""


def tensor_facts(tensor: torch.Tensor) -> Facts:
    """Return the facts of one parameter."""
    plain = tensor.detach()
    if plain.is_floating_point():
        plain = plain.masked_fill(plain.isnan(), math.nan)
    norm = float(torch.linalg.vector_norm(plain.to("cpu", torch.float64)))
    return tensor_checksum([plain]), norm, tensor.requires_grad


def tensor_checksum(tensors: Sequence[torch.Tensor]) -> int:
    """Return the checksum, signed, of tensors by their values: how they lie in memory does not matter."""
    by_device: defaultdict[torch.device, list[torch.Tensor]] = defaultdict(list)
    for tensor in tensors:
        by_device[tensor.device].append(tensor.detach().reshape(-1).view(torch.uint8))
    host = checksum(one.numpy() for one in by_device.pop(torch.device("cpu"), []))
    return signed(host + sum(map(device_checksum, by_device.values())))


def device_checksum(parts: Sequence[torch.Tensor], most: int = DEVICE_BYTES) -> int:
    """Return the checksum of bytes on a device: a few kernels for each ``most`` of them, and one copy."""
    packs: list[list[torch.Tensor]] = [[]]
    room = most
    for piece in (piece for part in parts for piece in part.split(most)):  # type: ignore[no-untyped-call]
        if piece.numel() > room:
            packs.append([])
            room = most
        packs[-1].append(piece)
        room -= piece.numel()
    return int(_sum_of_words([_sum_of_words(pack).view(torch.uint8) for pack in packs]))


def _sum_of_words(pieces: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the sum of 64-bit words, each times an odd number of its place, as one element."""
    zeros = pieces[0].new_zeros(-sum(one.numel() for one in pieces) % 8)
    words = torch.cat([*pieces, zeros]).view(torch.int64)
    places = torch.arange(1, words.numel() + 1, device=words.device).mul_(signed(FACTOR))
    return places.bitwise_xor_(places >> 29).bitwise_or_(1).mul_(words).sum().reshape(1)


TENSORS = ParameterKind(
    checksum=tensor_checksum,
    facts=tensor_facts,
    cure="hvd.broadcast_parameters(model.state_dict(), root_rank=0)",
)
