"""PyTorch's vector kernels, as the transports use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy
import torch

from ringleader.adapters.numpy_adapter import DOT_COUNT
from ringleader.adapters.numpy_arithmetic import (
    HALF_TYPES,
    PIECE_ELEMENTS,
    Array,
    NumpyFlat,
    dtype_named,
    float_reduction,
    pieces,
    scale_integers,
)
from ringleader.adapters.numpy_arithmetic import scale as scale_array
from ringleader.engine.communicator import memory_at
from ringleader.engine.operations import ReduceOp
from ringleader.engine.reduction_kernels import FlatKernels, divisor_of

CPU = torch.device("cpu")
DTYPES: dict[torch.dtype, str] = {
    torch.bool: "bool",
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.uint16: "uint16",
    torch.int16: "int16",
    torch.uint32: "uint32",
    torch.int32: "int32",
    torch.uint64: "uint64",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}
"""Element types that can be carried, by their framework-neutral names."""
TORCH_TYPES = {name: dtype for dtype, name in DTYPES.items()}
# PyTorch has few kernels for unsigned types wider than a byte. Their sums and products have the bits of those
# of the signed types; for the order of values see `_reduce_rare`.
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def dtype_name(tensor: torch.Tensor) -> str:
    """Return the neutral name of a tensor's element type; `ValueError` where it cannot be carried."""
    name = DTYPES.get(tensor.dtype)
    if name is None:
        raise ValueError(f"Tensor type {tensor.type()} is not supported.")
    return name


class TorchKernels:
    """See `ringleader.engine.reduction_kernels.Kernels`; arrays are tensors on one device."""

    def __init__(self, device: torch.device = CPU) -> None:
        """Take the device on which new tensors are made."""
        self.device = device

    def over(self, memory: Any, dtype: str, count: int) -> torch.Tensor:
        """Return a tensor over shared memory."""
        if count == 0:
            return torch.empty(0, dtype=TORCH_TYPES[dtype])
        return torch.frombuffer(memory, dtype=TORCH_TYPES[dtype], count=count)

    def from_numpy(self, array: Array) -> torch.Tensor:
        """Return a tensor over an array's memory, or over a copy where that may not be written to."""
        if not array.flags.writeable:  # PyTorch has no tensors that are only read
            array = array.copy()
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
        return torch.from_numpy(array)

    def to_numpy(self, array: torch.Tensor) -> Array:
        """Return an array over a CPU tensor's memory."""
        if array.dtype is torch.bfloat16:
            return array.view(torch.int16).numpy().view(dtype_named("bfloat16"))
        return array.numpy()

    def empty(self, shape: Sequence[int], dtype: str) -> torch.Tensor:
        """Return a new tensor of undefined content."""
        return torch.empty(tuple(shape), dtype=TORCH_TYPES[dtype], device=self.device)

    def zero(self, array: torch.Tensor) -> None:
        """Set all elements to zero."""
        array.zero_()

    def flat(self, array: torch.Tensor) -> torch.Tensor:
        """Return a 1-D view."""
        return array.view(-1)

    def count(self, array: torch.Tensor) -> int:
        """Return the number of elements."""
        return array.numel()

    def length(self, array: torch.Tensor) -> int:
        """Return the size of the first dimension."""
        return array.size(0)

    def address(self, array: torch.Tensor) -> int:
        """Return the address of the first element."""
        return array.data_ptr()

    def addresses(self, arrays: Sequence[torch.Tensor]) -> list[int]:
        """Return the address of the first element of each."""
        return [array.data_ptr() for array in arrays]

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy element by element, whatever the shapes."""
        if target.shape != source.shape:
            target, source = target.view(-1), source.view(-1)
        target.copy_(source)

    def scale(self, array: torch.Tensor, factor: float) -> None:
        """Multiply in place, or divide by n where the factor is one n-th: half types in float32, integers
        as `scale_integers` says."""
        dtype = array.dtype
        if dtype.is_floating_point and array.is_cpu:
            # PyTorch computes half types in float32 here.
            divisor = divisor_of(factor)
            if divisor:
                torch.div(array, divisor, out=array)
            else:
                torch.mul(array, factor, out=array)
        elif dtype in (torch.float32, torch.float64):
            _scale_floats(array, factor)
        elif dtype in (torch.float16, torch.bfloat16):
            array.copy_(_scale_floats(array.float(), factor))
        elif dtype != torch.bool and array.is_cpu:
            # Not by `array.numpy()`, after which PyTorch does not resize the script's tensor.
            count, plain = array.numel(), array.is_contiguous()
            flat = flat_at(array.data_ptr(), DTYPES[dtype], count) if count and plain else None
            scale_array(array.numpy() if flat is None else flat, factor)
        elif dtype != torch.bool:
            scale_on_device(array, factor)

    def reduce(self, out: torch.Tensor, parts: Sequence[torch.Tensor], op: ReduceOp, factor: float) -> None:
        """Reduce in the order of the parts, so that every rank gets the same bits."""
        if out.shape != parts[0].shape:
            out = out.view(-1)
        if factor != 1.0 and out.dim() == 1 and len(out) > PIECE_ELEMENTS:
            # In pieces, so that what is scaled is still in the cache.
            for piece in pieces(len(out)):
                self._reduce_at_once(out[piece], [part[piece] for part in parts], op, factor)
        else:
            self._reduce_at_once(out, parts, op, factor)

    def _reduce_at_once(
        self, out: torch.Tensor, parts: Sequence[torch.Tensor], op: ReduceOp, factor: float
    ) -> None:
        if out.dtype in _SIGNED or out.dtype == torch.bool:
            self._reduce_rare(out, parts, op)
        else:
            combine = _COMBINE[op]
            if len(parts) == 1:
                if out is not parts[0]:
                    out.copy_(parts[0])
            else:
                combine(parts[0], parts[1], out=out)
                for part in parts[2:]:
                    combine(out, part, out=out)
        if factor != 1.0:
            self.scale(out, factor)

    def _reduce_rare(self, out: torch.Tensor, parts: Sequence[torch.Tensor], op: ReduceOp) -> None:
        if out.dtype == torch.bool:
            either = op in (ReduceOp.SUM, ReduceOp.MAX)
            stacked = torch.stack(list(parts))
            out.copy_(stacked.any(0) if either else stacked.all(0))
            return
        signed = _SIGNED[out.dtype]
        flip = op in (ReduceOp.MIN, ReduceOp.MAX)
        views = [part.view(signed) for part in parts]
        if flip:
            # Order of unsigned numbers is the order of signed ones with the highest bit turned over.
            views = [view ^ torch.iinfo(signed).min for view in views]
        total = views[0].clone()
        for view in views[1:]:
            _COMBINE[op](total, view, out=total)
        out.view(signed).copy_(total ^ torch.iinfo(signed).min if flip else total)

    def everywhere(self, chunks: Sequence[Sequence[torch.Tensor]]) -> Callable[[ReduceOp, float], None]:
        """Return a function that reduces each chunk's tensors in their order and writes into all of them."""
        if chunks and chunks[0][0].dtype in (torch.float32, torch.float64):
            # NumPy's kernels are as fast on floats and begin 0.7 µs sooner.
            return float_reduction([[view.numpy() for view in views] for views in chunks])

        def reduce(op: ReduceOp, factor: float) -> None:
            for views in chunks:
                self.reduce(views[0], views, op, factor)
                for view in views[1:]:
                    view.copy_(views[0])

        return reduce

    def flat_kernels(self, dtype: str) -> FlatKernels:
        """Return NumPy's for all types but the half ones: a call of them begins 1 µs sooner."""
        if dtype in HALF_TYPES:
            return self

        def take(tensor: torch.Tensor) -> Array | None:
            # Not by `tensor.numpy()`, after which PyTorch does not resize the script's tensor.
            return flat_at(tensor.data_ptr(), dtype, tensor.numel())

        return NumpyFlat(dtype, take=take, give=torch.from_numpy)

    # `FlatKernels` of the half types

    take = flat

    def give(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the flat tensor itself."""
        return flat

    def copier(self, target: torch.Tensor) -> Callable[[torch.Tensor], Any]:
        """Return what copies tensors of its length into it."""
        return target.copy_

    def reducer(self, op: ReduceOp, factor: float) -> Callable[[torch.Tensor, Sequence[torch.Tensor]], None]:
        """Return what reduces parts in their order and scales the result."""
        return lambda out, parts: self._reduce_at_once(out, parts, op, factor)

    def calls(
        self, out: torch.Tensor, parts: Sequence[torch.Tensor], op: ReduceOp, factor: float
    ) -> Sequence[Callable[[], Any]]:
        """Return a call that reduces the parts."""
        return [partial(self.reduce, out, parts, op, factor)]

    def dots(self, first: torch.Tensor, second: torch.Tensor) -> tuple[float, float, float]:
        """Return the three dot products of two tensors; in pieces, which bounds the room for float64."""
        sums = [0.0, 0.0, 0.0]
        for start in range(0, first.numel(), DOT_COUNT):
            one = first[start : start + DOT_COUNT].double()
            other = second[start : start + DOT_COUNT].double()
            for at, (left, right) in enumerate(((one, other), (one, one), (other, other))):
                sums[at] += torch.dot(left, right).item()
        return sums[0], sums[1], sums[2]

    def blend(
        self,
        out: torch.Tensor,
        first: torch.Tensor,
        of_first: float,
        second: torch.Tensor,
        of_second: float,
    ) -> None:
        """Write a weighted sum of two tensors; half types are computed in float32."""
        inner = torch.float32 if out.dtype in (torch.float16, torch.bfloat16) else out.dtype
        total = first.to(inner) * of_first
        out.copy_(total.add_(second.to(inner) * of_second))


def flat_at(address: int, dtype: str, count: int) -> Array | None:
    """Return the flat array of `TorchKernels.flat_kernels` over memory that it does not keep.

    It is valid as long as a tensor of this type and length lies there. None where these kernels take tensors.
    """
    if dtype in HALF_TYPES:
        return None
    kind = dtype_named(dtype)
    return numpy.frombuffer(memory_at(address, count * kind.itemsize), kind)


def scale_on_device(array: torch.Tensor, factor: float) -> None:
    """Multiply integers in place where they lie; see `scale_integers`."""
    scale_integers(
        array.view(torch.int64) if array.dtype == torch.uint64 else array,
        array.numel(),
        factor,
        (torch.iinfo(array.dtype).min, torch.iinfo(array.dtype).max),
        where=torch.where,
        to_float=torch.Tensor.double,
        to_int=torch.Tensor.long,
        write=torch.Tensor.copy_,
    )


def _scale_floats(array: torch.Tensor, factor: float) -> torch.Tensor:
    divisor = divisor_of(factor)
    if not divisor:
        return array.mul_(factor)
    # By a number PyTorch multiplies with its inverse there, by a tensor it divides.
    return array.div_(torch.full((), divisor, dtype=array.dtype, device=array.device))


_COMBINE: dict[ReduceOp, Any] = {
    ReduceOp.SUM: torch.add,
    ReduceOp.MIN: torch.minimum,
    ReduceOp.MAX: torch.maximum,
    ReduceOp.PRODUCT: torch.mul,
}
