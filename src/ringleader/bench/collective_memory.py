"""The memory that operations work on: of the host, registered with our engine, or of a GPU."""

from __future__ import annotations

from typing import Any

import numpy

from ringleader.adapters.numpy_adapter import aligned_empty
from ringleader.bench.collective_plan import DTYPES
from ringleader.bench.collective_values import Array


class Memory:
    """Some bytes, seen as NumPy's arrays or PyTorch's tensors. Offsets and lengths in bytes."""

    def __init__(self, *, array: Array | None = None, tensor: Any = None) -> None:
        """``array``: bytes of host memory; ``tensor``: PyTorch's, for registered memory or that of a GPU."""
        self._array, self._tensor = array, tensor

    @property
    def is_host(self) -> bool:
        """Whether NumPy sees it."""
        return self._array is not None

    def array(self, dtype: str, start: int, length: int) -> Array:
        """Return a part as NumPy's array of an element type; bfloat16 as uint16, which NumPy has."""
        assert self._array is not None
        name = "uint16" if dtype == "bfloat16" else dtype
        return self._array[start : start + length].view(name)

    def tensor(self, dtype: str, start: int, length: int) -> Any:
        """Return a part as PyTorch's tensor of an element type."""
        import torch

        kind = getattr(torch, dtype)
        if self._tensor is None:
            return torch.from_numpy(self._array[start : start + length]).view(kind)  # type: ignore[index]
        itemsize = DTYPES[dtype][1]
        return self._tensor[start // itemsize : (start + length) // itemsize]

    def write(self, start: int, data: Array) -> None:
        """Put bytes there."""
        if self._array is not None:
            self._array[start : start + data.nbytes] = data
            return
        import torch

        own = self._tensor.view(torch.uint8)
        own[start : start + data.nbytes].copy_(torch.from_numpy(data))

    def clear(self) -> None:
        """Set every byte to 0."""
        if self._array is not None:
            self._array.fill(0)
        else:
            self._tensor.zero_()

    def read(self, start: int, length: int) -> Array:
        """Return bytes as they are now."""
        if self._array is not None:
            return self._array[start : start + length]
        import torch

        found: Array = self._tensor.view(torch.uint8)[start : start + length].cpu().numpy()
        return found


def bytes_of_tensor(tensor: Any) -> Array:
    """Return the bytes of a contiguous tensor of PyTorch."""
    import torch

    found: Array = tensor.detach().reshape(-1).view(torch.uint8).cpu().numpy()
    return found


def host_memory(nbytes: int) -> Memory:
    """Return memory of the host whose pages are all there."""
    array = aligned_empty((nbytes,), numpy.dtype(numpy.uint8))
    array.fill(1)
    return Memory(array=array)


def registered_memory(nbytes: int, dtype: str) -> Memory:
    """Return memory that the ranks of a host share. Collective."""
    import torch

    import ringleader.torch as hvd

    tensor = hvd.registered_empty(nbytes // DTYPES[dtype][1], dtype=getattr(torch, dtype))
    tensor.fill_(1)
    return Memory(array=tensor.view(torch.uint8).numpy(), tensor=tensor)


def gpu_memory(nbytes: int, dtype: str) -> Memory:
    """Return memory of this rank's GPU."""
    import torch

    kind = getattr(torch, dtype)
    return Memory(tensor=torch.ones(nbytes // DTYPES[dtype][1], dtype=kind, device="cuda"))
