"""MXNet's arrays and NumPy's over the same memory, both ways without a copy.

MXNet computes in its own threads and returns before it is done. So an array is waited for before its
memory is handed out, and what is done with that memory is over before the script continues.
"""

from __future__ import annotations

import ctypes
from typing import Any

import mxnet
import numpy
from mxnet.base import _LIB, MXNetError, check_call
from mxnet.ndarray import NDArray

from ringleader.adapters.numpy_adapter import Array

_WITH_DLPACK = ("float16", "float32", "float64", "int32", "int64", "uint8", "bool")
"""Element types of which MXNet takes an array of NumPy's as it is."""


class ArgumentError(MXNetError, ValueError):
    """What this rank passed cannot be exchanged: an MXNetError, as Horovod raises, and a `ValueError`."""


class _Memory:
    """Memory of an array of MXNet's, as NumPy asks for it; keeps the array alive."""

    __slots__ = ("__array_interface__", "_tensor")

    def __init__(self, tensor: NDArray, address: int) -> None:
        self._tensor = tensor
        self.__array_interface__ = {
            "data": (address, False),
            "shape": tensor.shape,
            "typestr": numpy.dtype(tensor.dtype).str,
            "version": 3,
        }


def check_array(tensor: Any) -> NDArray:
    """Return the array; `ArgumentError` where its memory cannot be exchanged."""
    if not isinstance(tensor, NDArray):
        raise ArgumentError(f"{type(tensor).__name__} is not an array of MXNet's: pass mx.nd.array(…) of it")
    if tensor.stype != "default":
        raise ArgumentError(
            f"arrays of storage type {tensor.stype} are not supported; pass array.tostype('default'), and "
            "make layers without sparse_grad=True"
        )
    if tensor.context.device_type == "gpu":
        raise ArgumentError(
            f"an array on {tensor.context} is not supported: MXNet's GPU arrays cannot be exchanged here; "
            "compute on mx.cpu(), or copy with array.as_in_context(mx.cpu())"
        )
    return tensor


def read_only_view(tensor: Any) -> Array:
    """Return a view of an array to read from, when what MXNet is computing there is done."""
    check_call(_LIB.MXNDArrayWaitToRead(check_array(tensor).handle))
    return _view(tensor)


def writeable_view(tensor: Any) -> Array:
    """Return a view of an array to write to, when nothing of MXNet's reads or writes there any more."""
    check_call(_LIB.MXNDArrayWaitToWrite(check_array(tensor).handle))
    return _view(tensor)


def _view(tensor: NDArray) -> Array:
    address = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(tensor.handle, ctypes.byref(address)))
    if address.value is None:  # an array without elements has no memory
        return numpy.empty(tensor.shape, tensor.dtype)
    return numpy.asarray(_Memory(tensor, address.value))


def array_of(values: Array, like: NDArray) -> NDArray:
    """Return an array of MXNet's over the values' memory, of the kind and in the context of another one."""
    kind = type(like) if isinstance(like, mxnet.np.ndarray) else NDArray
    if values.dtype.name in _WITH_DLPACK:
        made = mxnet.nd.from_numpy(values, array_cls=kind)
    else:
        with mxnet.util.np_shape():  # else MXNet makes no arrays without elements
            made = mxnet.nd.array(values, dtype=values.dtype)
        made = made if kind is NDArray else made.as_np_ndarray()
    return made if made.context == like.context else made.as_in_context(like.context)
