"""Storages of tensors that are results; `adapters.recycled_results` says when one is used again.

The owner is the storage, with which all of PyTorch's tensors over it, and what NumPy and DLPack made of them,
count as uses in C++. A result's storage is an ordinary one: it can be resized, shared and moved, after which
its memory is another and it is not used again.
"""

from __future__ import annotations

import ctypes
import mmap

import torch

from ringleader.adapters.recycled_results import ResultMemory, is_recycled

HUGE_BYTES = 2 << 20
"""A huge page. Kernels give them to memory that asks for them; NumPy asks for its own."""
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_uses = getattr(torch._C, "_storage_Use_Count", None)
_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class TensorMemory(ResultMemory):
    """Storages of tensors in host memory."""

    def new(self, nbytes: int) -> torch.UntypedStorage:
        """Return a storage, of huge pages where it is long and the kernel has them."""
        storage = torch.UntypedStorage(nbytes)  # type: ignore[no-untyped-call]
        start = -(-storage.data_ptr() // HUGE_BYTES) * HUGE_BYTES
        length = (storage.data_ptr() + nbytes - start) // HUGE_BYTES * HUGE_BYTES
        if length > 0:
            _libc.madvise(start, length, mmap.MADV_HUGEPAGE)  # what fails leaves ordinary pages
        return storage

    def place(self, owner: torch.UntypedStorage) -> tuple[int, int, bool]:
        """Return its address, its length, and whether it can be resized.

        They change where a script shares, resizes or registers it, the last one where NumPy has it once.
        """
        return owner.data_ptr(), owner.nbytes(), owner.resizable()

    def is_used(self, owner: torch.UntypedStorage) -> bool:
        """Return whether C++ has another use of the storage than Python's object for it."""
        return _uses is None or _uses(owner._cdata) != 1


TENSORS = TensorMemory()


def result_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of undefined content for the result of an operation on a contiguous one."""
    nbytes = tensor.nbytes
    plain = tensor.__class__ in _PLAIN and tensor.is_cpu  # the result of a subclass is one of it
    if not plain or not is_recycled(nbytes):
        return torch.empty_like(tensor)
    result = torch.empty(0, dtype=tensor.dtype, device="cpu")
    return result.set_(TENSORS.take(nbytes), 0, tensor.shape, tensor.stride())
