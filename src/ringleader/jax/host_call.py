"""Calls of Python from compiled programs on CPUs, on the program's own memory.

`jax.experimental.io_callback` makes arrays of JAX of what it is called with, and reading those waits for
XLA's threads: in a process that has one processor, it waits for itself. It also copies both ways. This goes
by XLA's interface for foreign functions, a stable one in C: the handler is a `ctypes` callback that gets the
addresses of the buffers. Structures and constants are those of ``xla/ffi/api/c_api.h``.
"""

from __future__ import annotations

import ctypes
import math
import traceback
from collections.abc import Callable, Sequence
from ctypes import POINTER, Structure, c_char, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from functools import cache
from typing import Any, ClassVar

import jax
import numpy

from ringleader.adapters.numpy_adapter import Array
from ringleader.adapters.numpy_arithmetic import dtype_named

TARGET = "ringleader_host_call"
METADATA = 1
"""Extension of a call that asks for the handler's version, and does nothing else."""
EXECUTE = 3
INTERNAL = 13
"""Code of an error."""
API_MAJOR = 0
"""Version of the interface that these structures are of."""

Function = Callable[[Sequence[Array]], None]
"""Takes arrays over the program's buffers and writes the results into them."""


class _Extension(Structure):
    _fields_ = (("struct_size", c_size_t), ("type", c_int), ("next", c_void_p))


class _Extensible(Structure):
    """How most structures begin."""

    _fields_: ClassVar[Any] = (("struct_size", c_size_t), ("extensions", c_void_p))


class _Version(_Extensible):
    _fields_ = (("major", c_int), ("minor", c_int))


class _Metadata(Structure):
    _fields_ = (("struct_size", c_size_t), ("version", _Version), ("traits", c_uint32))


class _MetadataExtension(Structure):
    _fields_ = (("base", _Extension), ("metadata", POINTER(_Metadata)))


class _ErrorArguments(_Extensible):
    _fields_ = (("message", c_char_p), ("code", c_int))


_CreateError = ctypes.CFUNCTYPE(c_void_p, POINTER(_ErrorArguments))


class _Api(_Extensible):
    _fields_ = (("version", _Version), ("internal", c_void_p), ("create_error", _CreateError))


class _Buffer(_Extensible):
    _fields_ = (("dtype", c_int), ("data", c_void_p), ("rank", c_int64), ("dims", POINTER(c_int64)))


class _Values(_Extensible):
    """Arguments or results."""

    _fields_ = (("size", c_int64), ("types", c_void_p), ("values", POINTER(POINTER(_Buffer))))


class _Scalar(Structure):
    _fields_ = (("dtype", c_int), ("value", POINTER(c_int64)))


class _Attributes(_Extensible):
    _fields_ = (
        ("size", c_int64),
        ("types", c_void_p),
        ("names", c_void_p),
        ("values", POINTER(POINTER(_Scalar))),
    )


class _CallFrame(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("extensions", POINTER(_MetadataExtension)),
        ("api", POINTER(_Api)),
        ("context", c_void_p),
        ("stage", c_int),
        ("arguments", _Values),
        ("results", _Values),
        ("attributes", _Attributes),
    )


Forms = tuple[tuple[tuple[int, ...], Any], ...]
"""Shapes and types of arrays."""

_NUMBERS: dict[tuple[Function, Forms], int] = {}
_FUNCTIONS: list[tuple[Function, Forms]] = []
"""What programs call, by number. A program may live as long as the process, so these do."""


def host_call(function: Function, arrays: Sequence[Any]) -> list[Any]:
    """Return what a function writes over copies of arrays when the program runs, or at once.

    The function is called once for every run of the program, in one of XLA's threads; it should be the same
    object in every call. Arrays or tracers; for programs on CPUs.
    """
    _register()
    called = (function, tuple((tuple(one.shape), dtype_named(str(one.dtype))) for one in arrays))
    number = _NUMBERS.setdefault(called, len(_FUNCTIONS))
    if number == len(_FUNCTIONS):
        _FUNCTIONS.append(called)
    call = jax.ffi.ffi_call(
        TARGET,
        tuple(jax.ShapeDtypeStruct(one.shape, one.dtype) for one in arrays),
        has_side_effect=True,
        input_output_aliases={at: at for at in range(len(arrays))},
    )
    return list(call(*arrays, function=numpy.int64(number)))


@cache
def _register() -> None:
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(ctypes.cast(_handler, c_void_p)), platform="cpu")


@ctypes.CFUNCTYPE(c_void_p, POINTER(_CallFrame))
def _handler(frame_pointer: Any) -> int | None:
    frame = frame_pointer.contents
    if frame.extensions and frame.extensions.contents.base.type == METADATA:
        version = frame.extensions.contents.metadata.contents.version
        version.major, version.minor = API_MAJOR, frame.api.contents.version.minor if frame.api else 0
        return None
    if frame.stage != EXECUTE:
        return None
    try:
        _execute(frame)
    except BaseException as error:  # nothing may pass through XLA
        text = "".join(traceback.format_exception(error)).encode()
        arguments = _ErrorArguments(ctypes.sizeof(_ErrorArguments), None, text, INTERNAL)
        created: int | None = frame.api.contents.create_error(ctypes.byref(arguments))
        return created
    return None


def _execute(frame: Any) -> None:
    function, forms = _FUNCTIONS[frame.attributes.values[0].contents.value.contents.value]
    arrays = []
    for at, (shape, dtype) in enumerate(forms):
        given, wanted = frame.arguments.values[at].contents.data, frame.results.values[at].contents.data
        length = math.prod(shape) * dtype.itemsize
        if given != wanted and length:
            ctypes.memmove(wanted, given, length)
        memory = (c_char * length).from_address(wanted) if length else bytearray()
        arrays.append(numpy.frombuffer(memory, dtype).reshape(shape))
    function(arrays)
