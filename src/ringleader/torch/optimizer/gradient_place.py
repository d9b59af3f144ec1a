"""The place of one gradient or parameter in the engine's memory; `bucket_memory` has those of an optimizer.

A script may do anything to the tensors that it gets: change their type or layout, share them with other
processes, keep them. So it never gets a tensor that is kept here, each place has a storage apart, which ends
with it, and whether a tensor is in its place is decided by address and layout.
"""

from __future__ import annotations

from functools import cache

import torch

_USE_COUNT = torch._C._storage_Use_Count
_MINE = 2
"""References to the storage of a place that are ours: the tensor and the storage object."""
LARGEST_BYTES = (32 << 20) - (64 << 10)
"""As near to glibc's ``DEFAULT_MMAP_THRESHOLD_MAX`` as a block with its header and its alignment may be."""


class MemoryPlace:
    """Where a gradient or a parameter of some type and layout lies."""

    def __init__(self, like: torch.Tensor, flat: torch.Tensor) -> None:
        """Take memory of the engine, 1-D, for what has the type and layout of ``like``."""
        self._flat, self._like_strides = flat, like.stride()
        self._view = shaped_like(like, flat)
        self._strides, self._shape = self._view.stride(), like.shape
        self._dtype, self._device, self._address = flat.dtype, flat.device, self._view.data_ptr()
        self._renew()

    def _renew(self) -> None:
        # By DLPack the memory gets its own storage: what is done to that is done to no other gradient.
        flat = torch.from_dlpack(self._flat) if self._flat.numel() else self._flat  # type: ignore[attr-defined]
        self._view = flat.as_strided(self._shape, self._strides, 0).detach()
        self._storage = self._view.untyped_storage()

    def holds(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is in this place, as it was planned."""
        return (
            tensor.layout is torch.strided
            and tensor.data_ptr() == self._address
            and tensor.dtype is self._dtype
            and tensor.stride() == self._strides
            and tensor.shape == self._shape
        )

    def fits(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor has the type, shape and device of this place."""
        return tensor.dtype is self._dtype and tensor.shape == self._shape and tensor.device == self._device

    def is_laid_out_as(self, parameter: torch.Tensor) -> bool:
        """Return whether a parameter still has the strides that this place was made for."""
        return parameter.stride() == self._like_strides

    @property
    def view(self) -> torch.Tensor:
        """Return the tensor in this place, for reading and writing; see `alias` for what a script may get."""
        if self._view.data_ptr() != self._address:
            self._renew()  # the storage was moved, as `Tensor.share_memory_` does
        return self._view

    def alias(self) -> torch.Tensor:
        """Return a tensor in this place that a script may have."""
        return self.view.detach()

    def vacate(self) -> torch.Tensor:
        """Return the tensor in this place, for other values; what a script kept of the last ones gets a copy.

        To be called where the parameter's gradient does not lie here. Arrays that NumPy or DLPack took cannot
        be moved: they see the new values.
        """
        view = self.view
        if _USE_COUNT(self._storage._cdata) > _MINE:
            copy = view.clone()
            # The script's tensors keep their storage, which gets the copy; ours has the engine's memory then.
            self._storage._swap_data_ptr_(copy.untyped_storage())  # type: ignore[attr-defined]
            self._view, self._storage = copy, copy.untyped_storage()
        return self._view


def is_alone(tensor: torch.Tensor) -> bool:
    """Return whether nothing else looks at the memory of a dense tensor, which PyTorch itself allocated."""
    if tensor._is_view():
        return False  # it counts changes together with the tensor that it is a view of
    storage = tensor.untyped_storage()
    return storage.resizable() and _USE_COUNT(storage._cdata) <= _MINE


def shaped_like(parameter: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    """Return flat memory with the shape of a parameter and, where that is dense, with its strides."""
    formats = (torch.channels_last, torch.channels_last_3d)
    for form, dims in zip(formats, (4, 5), strict=True):
        last = parameter.dim() == dims and parameter.is_contiguous(memory_format=form)
        if last and not parameter.is_contiguous():
            return flat.as_strided(parameter.shape, parameter.stride(), flat.storage_offset())
    return flat.view(parameter.shape)


@cache
def keep_freed_memory() -> None:
    """Have the process keep up to 64 MiB that it has freed. With another C library this changes nothing.

    Plain PyTorch keeps the gradients that backward makes until `zero_grad`. In buckets each is copied to its
    place and freed at once, at the end of the heap. glibc gives a long free end back to the system, so
    every backward pass would have the same pages zeroed and mapped again: 2,000 page faults and 5 of 31 ms
    for layers of 4 MiB. How long the end may be is twice the largest block that was freed, where blocks
    beyond 32 MiB do not count. So one such block is made and freed; it is never touched and costs nothing.
    """
    torch.empty(LARGEST_BYTES, dtype=torch.uint8)
