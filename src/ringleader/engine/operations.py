"""What ranks ask of each other, as values. Pure.

A `Signature` says what is to be done (the same for every step of a training, so it is built once and kept); a
`Work` is one submission of it: the signature, a name, and this rank's arrays. Two ranks mean the same
operation when names are equal; they agree on it when the signatures are equal. Both facts are in one 64-bit
digest, so that in the usual case a comparison of two integers is the whole negotiation.

Operations that are pending together bring the sum of their digests, which does not depend on the order in
which a rank asked for them. So the digest of one must not be linear in its signature and its name: else two
operations that swapped their names, shapes or reductions would have the same sum.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

MASK = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15
_NAMED = 1 << 64
"""Makes operations with a name follow those without one in the order that ranks agree on."""


class ReduceOp(IntEnum):
    """How values of several ranks become one. The numbers are Horovod's."""

    AVERAGE = 0
    SUM = 1
    ADASUM = 2
    MIN = 3
    MAX = 4
    PRODUCT = 5


def plain_op(op: ReduceOp, postscale: float, size: int) -> tuple[ReduceOp, float]:
    """Return the reduction that carries ``op`` out and the factor after it: an average is a scaled sum."""
    if op is ReduceOp.AVERAGE:
        return ReduceOp.SUM, postscale / size
    return op, postscale


def row_counts(rows: int, size: int) -> list[int]:
    """Return how many rows each rank gets of a result of ``rows``: the first ones get one more."""
    return [rows // size + (rank < rows % size) for rank in range(size)]


def starts_of(counts: Sequence[int]) -> list[int]:
    """Return where each part begins when parts lie one after the other, and where the last one ends."""
    return [0, *itertools.accumulate(counts)]


@lru_cache(maxsize=4096)
def digest_of(text: str) -> int:
    """Return 64 bits that are the same for the same text in every process."""
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """One operation without its name and data. Every rank must bring an equal one."""

    kind: str
    """``allreduce``, ``allgather``, ``broadcast``, ``alltoall``, ``reducescatter``, ``gradients``,
    ``gradient_parts``, ``parameter_parts``, ``publish_parts``, ``register``, ``process_set``, ``launch``,
    ``barrier`` or ``join``. With ``launch`` the ranks agree that the gradients
    of a step are launched on devices without any more agreement."""
    dtype: str = "uint8"
    """Element type by its framework-neutral name, such as ``float32`` or ``bfloat16``."""
    shape: tuple[int, ...] = ()
    """Elements per dimension; for ``allgather`` and ``alltoall`` without the first one, which may differ
    between ranks."""
    op: ReduceOp = ReduceOp.SUM
    """The reduction, where the kind has one. ``AVERAGE`` divides by the number of ranks."""
    root: int = 0
    """The rank whose data goes to the others, where the kind has one."""
    prescale: float = 1.0
    """Factor on each rank's values before the reduction, cast back to the element type."""
    postscale: float = 1.0
    """Factor on the result."""
    note: str = ""
    """Anything else that must be equal: the digest of a bucket plan, the change of process sets."""
    device: str = "cpu"
    """Kind of device on which the data lies, such as ``cpu`` or ``cuda``."""

    def describe(self) -> str:
        """Say it in words for an error message."""
        if self.kind == "process_set":
            return self.note
        text = f"{self.kind} of {self.dtype}{list(self.shape)}"
        if self.kind == "broadcast":
            text += f" from rank {self.root}"
        if self.kind in ("allreduce", "reducescatter", *GRADIENTS):
            text += f", op {self.op.name.lower()}"
        if (self.prescale, self.postscale) != (1.0, 1.0):
            text += f", scales {self.prescale:g} and {self.postscale:g}"
        if self.device != "cpu":
            text += f", on {self.device}"
        return text + (f" ({self.note})" if self.note else "")

    def as_list(self) -> list[Any]:
        """Return the fields as JSON can carry them; `from_list` is the way back."""
        return [list(self.shape), int(self.op), *(getattr(self, name) for name in _OTHER_FIELDS)]

    @classmethod
    def from_list(cls, fields: list[Any]) -> Signature:
        """Build the signature that `as_list` described."""
        shape, op, *others = fields
        return cls(shape=tuple(shape), op=ReduceOp(op), **dict(zip(_OTHER_FIELDS, others, strict=True)))


_OTHER_FIELDS = ("kind", "dtype", "root", "prescale", "postscale", "note", "device")
ONCE = ("register", "process_set", "barrier", "join")
"""Kinds that have one name for ever: a rank may have done more operations than another before them, so that
the serial number would not do."""
GRADIENTS = ("gradients", "gradient_parts")
"""Kinds that reduce registered memory: with the result on every rank, or each part of it on its owner."""
ANYBODY = ("allreduce", "gradients", "barrier", "launch")
"""Kinds in which a rank that has joined can take part without being asked."""
JOIN = "join.noname"
"""The name under which ranks join."""


def _bound(signature_digest: int, name_digest: int) -> int:
    """Return 64 bits that belong to this signature under this name: both halves of a 128-bit product."""
    product = signature_digest * name_digest
    return (product ^ product >> 64) & MASK


class Work:
    """One operation that this rank submitted: the signature, its name, its arrays, and how far it is.

    Not frozen: the engine says when it is done. ``array`` is this rank's input; ``out`` receives the result
    and may be the same array (in place). For kinds whose result size is known only when all ranks are there,
    ``out`` is set by the transport. ``alltoall`` has two more: ``splits`` are the rows that go to each rank
    (None: equal parts), and the transport sets ``received`` to the rows that came from each. After ``join``,
    ``out`` is the number of the rank that joined last. ``stream_events`` is for what carries arrays on
    devices: where in the order of its device the work stands. For ``launch``, ``array`` is whether this rank
    would, and ``out`` is whether all ranks will.

    ``name`` is what peers know it by; ``order`` is equal on all ranks and never the same for two operations
    that are pending, so that ranks that have the same operations pending sort them alike.
    """

    __slots__ = (
        "array",
        "digest",
        "done",
        "error",
        "local_name",
        "name",
        "order",
        "out",
        "received",
        "repeated",
        "serial",
        "signature",
        "signature_digest",
        "since",
        "splits",
        "stream_events",
    )

    def __init__(
        self,
        signature: Signature,
        signature_digest: int,
        *,
        name: str | None,
        serial: int,
        array: Any,
        out: Any,
        splits: tuple[int, ...] | None = None,
    ) -> None:
        """Describe the work. Without a name, the serial number of the operation on each rank is the name.

        `ValueError` for a name that is not a string.
        """
        self.signature = signature
        self.signature_digest = signature_digest
        self.local_name = name
        self.serial = serial
        self.array = array
        self.out = out
        self.splits = splits
        self.received: tuple[int, ...] = ()
        self.stream_events: Any = None
        self.done = False
        self.error: Exception | None = None
        self.repeated = False
        """Whether it was done before under this name: whoever keeps it for that takes its arrays out."""
        self.since = 0.0
        """When it was handed to the engine, on the engine's clock."""
        if name is not None:
            if not isinstance(name, str):
                raise ValueError(f"the name of an operation is a string, not {name!r}")
            self.name = f"{signature.kind}.{name}"
            self.digest = _bound(signature_digest, digest_of(name))
            self.order = self.digest | _NAMED
        elif signature.kind in ONCE:
            self.name = f"{signature.kind}.noname"
            self.digest = signature_digest
            self.order = self.digest | _NAMED
        else:
            self.name = f"{signature.kind}.noname.{serial}"
            self.digest = _bound(signature_digest, (serial + 1) * _ODD & MASK)
            self.order = serial

    def again(self, serial: int) -> int:
        """Have a work that is kept without arrays be the operation of this number; return its digest.

        It is not handed to the engine's queue, so what only the queue needs stays as it was.
        """
        self.serial = serial
        if self.local_name is not None:
            return self.digest
        self.name = ""  # `__str__` makes it
        product = self.signature_digest * ((serial + 1) * _ODD & MASK)
        return (product ^ product >> 64) & MASK

    def with_arrays(self, array: Any, out: Any) -> Work:
        """Return a new work that does the same with these arrays."""
        name, serial = self.local_name, self.serial
        return Work(self.signature, self.signature_digest, name=name, serial=serial, array=array, out=out)

    def __str__(self) -> str:
        name = self.name or f"{self.signature.kind}.noname.{self.serial}"
        return f"{self.signature.kind} '{name}'"


def unnamed_serial(name: str, signature: Signature) -> int | None:
    """Return the serial number that is an operation's name, None where the script gave it one."""
    if signature.kind in ONCE:
        return None
    serial = name.removeprefix(f"{signature.kind}.noname.")
    return int(serial) if serial != name and serial.isdecimal() and serial.isascii() else None


def signature_digest(signature: Signature) -> int:
    """Return the digest of a signature; keep it, it costs microseconds."""
    return digest_of(repr(signature.as_list()))
