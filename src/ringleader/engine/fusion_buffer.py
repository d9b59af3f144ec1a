"""What a round does with the operations that are pending: in which order, and which of them together.

Small operations are done together: copied into one array, reduced at once, and copied out again.
Arrays on devices, whatever their size, are only grouped here: what carries them takes many in one call.

An exchange of a few KiB costs what its barrier costs, not what its bytes cost. Where several small reductions
are ready at once, those that are alike are packed one behind the other and done as one. The array is
registered memory, so where ranks share memory it is reduced in place.

A training asks for the same operations in every step. Where all of them were described before (see
`Work.repeated`) and are pending in the same order, the plan of then is the plan of now.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, is_
from typing import TYPE_CHECKING

from ringleader.engine.operations import JOIN, MASK, ReduceOp, Signature, Work
from ringleader.engine.reduction_kernels import ITEMSIZE, Array, Kernels

if TYPE_CHECKING:
    from ringleader.engine.communicator import Communicator, PackedCopy
    from ringleader.engine.transports.transport import Transport

MOST_PLANS = 256
"""Plans of batches that are kept. A training asks for the same few again and again."""
MOST_ROUND_PLANS = 64
"""Plans of rounds that are kept."""
_ARRAY, _OUT, _NAME = attrgetter("array"), attrgetter("out"), attrgetter("name")
_SIGNATURE = attrgetter("signature")
_DIGEST, _ORDER, _REPEATED = attrgetter("digest"), attrgetter("order"), attrgetter("repeated")


@dataclass(frozen=True, kw_only=True)
class FusionLimits:
    """What is packed. Equal on all ranks."""

    small_bytes: int = 512 << 10
    """A larger array travels alone: its barriers and descriptions cost no more than its two copies would."""
    most_bytes: int = 1 << 20
    """So much is packed together at most: it stays in the cache from the first copy to the last."""


@dataclass(kw_only=True, eq=False)
class Batch:
    """Operations that are done as one, or a single one."""

    signature: Signature
    """What is done: for several, the reduction of the packed array; for one, its own."""
    members: list[int]
    """Places in the list of operations."""
    lengths: list[int]
    """Bytes of each of them, one behind the other in the packed array."""
    copy: PackedCopy | None = None
    """Brings the arrays into the memory in which they travel and out of it; None for one alone."""
    work: Work | None = None
    """The reduction of that memory, built once; None for one alone, and for arrays on devices."""
    sources: list[int] = field(default_factory=list)
    """Addresses of the arrays that were packed last."""

    @property
    def packed(self) -> bool:
        """Return whether the arrays are copied into one memory: several of them, on the host.

        Those on devices are handed over together; what carries them does not need them side by side.
        """
        return len(self.members) > 1 and self.signature.device == "cpu"


def plan_batches(calls: Sequence[Signature], limits: FusionLimits) -> list[Batch]:
    """Cut operations, in the order in which they would be done, into batches; they have no memory yet."""
    batches: list[Batch] = []
    filling: dict[tuple[object, ...], Batch] = {}
    for place, signature in enumerate(calls):
        nbytes = math.prod(signature.shape) * ITEMSIZE.get(signature.dtype, 1)
        on_host = signature.device == "cpu"
        if not _can_be_packed(signature) or (on_host and not 0 < nbytes <= limits.small_bytes):
            batches.append(Batch(signature=signature, members=[place], lengths=[nbytes]))
            continue
        key = (
            signature.dtype,
            signature.op,
            signature.prescale,
            signature.postscale,
            signature.device,
            signature.note,
        )
        batch = filling.get(key)
        full = batch is not None and sum(batch.lengths) + nbytes > limits.most_bytes
        if batch is None or (on_host and full):
            batch = filling[key] = Batch(signature=signature, members=[], lengths=[])
            batches.append(batch)
        batch.members.append(place)
        batch.lengths.append(nbytes)
    for batch in batches:
        if len(batch.members) > 1:
            count = sum(batch.lengths) // ITEMSIZE[batch.signature.dtype]
            batch.signature = replace(batch.signature, shape=(count,))
    return batches


def _can_be_packed(signature: Signature) -> bool:
    # Adasum scales each array by its own length and angle.
    kind = signature.kind == "allreduce" and signature.op is not ReduceOp.ADASUM
    return kind and signature.dtype in ITEMSIZE


class FusionBuffer:
    """Plans, packs and unpacks for one engine."""

    def __init__(
        self, kernels: Kernels, transport: Transport, comm: Communicator, limits: FusionLimits
    ) -> None:
        """Take the framework's arithmetic, what carries the arrays, and what copies them."""
        self._kernels = kernels
        self._transport = transport
        self._comm = comm
        self._limits = limits
        self._memory: dict[str, Array] = {}
        self._plans: dict[tuple[int, ...], tuple[list[Signature], list[Batch]]] = {}

    def batches(self, works: Sequence[Work]) -> list[Batch]:
        """Return how these works are done. All ranks ask for the same works in the same order."""
        key = tuple(map(id, map(_SIGNATURE, works)))
        known = self._plans.get(key)
        if known is None:
            calls = list(map(_SIGNATURE, works))
            if len(self._plans) >= MOST_PLANS:
                self._forget_plans()
            batches = plan_batches(calls, self._limits)
            for batch in batches:
                if batch.packed:
                    self._allocate(batch)
            # The entry holds the calls, so that no other ones get their identities.
            known = self._plans[key] = (calls, batches)
        return known[1]

    def is_known(self, works: Sequence[Work]) -> bool:
        """Return whether works like these were done before, so that there is memory for them."""
        return tuple(map(id, map(_SIGNATURE, works))) in self._plans

    def _allocate(self, batch: Batch) -> None:
        kernels, signature = self._kernels, batch.signature
        memory = self._memory_for(signature.dtype)[: signature.shape[0]]
        batch.copy = self._comm.packed_copy(kernels.address(memory), batch.lengths)
        batch.work = Work(signature, 0, name="batch", serial=0, array=memory, out=memory)

    def _memory_for(self, dtype: str) -> Array:
        # All ranks come here for the first time with the same works, so that they allocate together.
        memory = self._memory.get(dtype)
        if memory is None:
            region = self._transport.register(self._limits.most_bytes // ITEMSIZE[dtype], dtype)
            memory = self._memory[dtype] = region.mine
        return memory

    def pack(self, batch: Batch, works: Sequence[Work]) -> Work:
        """Copy the members of a packed batch into its memory; return the reduction of that memory.

        It holds what was packed last. Other ranks read it from then until they have reduced it, and never
        before they have met this one.
        """
        assert batch.work is not None and batch.copy is not None
        batch.sources = self._kernels.addresses(list(map(_ARRAY, works)))
        batch.copy.pack(batch.sources)
        return batch.work

    def unpack(self, batch: Batch, works: Sequence[Work]) -> None:
        """Copy the results to where the members want them."""
        assert batch.copy is not None
        # Without a frame of Python for each of them: there may be hundreds.
        in_place = all(map(is_, map(_OUT, works), map(_ARRAY, works)))
        targets = batch.sources if in_place else self._kernels.addresses(list(map(_OUT, works)))
        batch.copy.unpack(targets)

    def close(self) -> None:
        """Let go of the memory."""
        self._forget_plans()
        self._memory.clear()

    def _forget_plans(self) -> None:
        for _calls, batches in self._plans.values():
            for batch in batches:
                if batch.copy is not None:
                    batch.copy.close()
        self._plans.clear()


@dataclass(kw_only=True, eq=False, slots=True)
class RoundPlan:
    """How to do the works that are pending together, once all ranks are known to have them."""

    pending: list[Work]
    """In the order in which this rank submitted them."""
    digest: int
    """Equal on ranks that have the same works pending, in whatever order."""
    joins: bool
    """Whether this rank has joined: who did so last is not in the digest."""
    in_order: list[Work] = field(init=False)
    """The same works, in an order that all ranks can tell."""
    batches: list[tuple[Batch | None, list[Work]]] | None = None
    """What travels together, and what travels alone. None before the ranks have agreed for the first time:
    they make memory for it together."""

    def __post_init__(self) -> None:
        self.in_order = sorted(self.pending, key=_ORDER)


class RoundPlans:
    """The plans of one engine."""

    def __init__(self) -> None:
        """Begin with none."""
        self._plans: dict[tuple[int, int], RoundPlan] = {}

    def of(self, pending: Sequence[Work]) -> RoundPlan:
        """Return the plan for works that are pending, one at least."""
        works = list(pending)
        key = (id(works[0]), len(works))
        known = self._plans.get(key)
        if known is not None and known.pending == works:  # works are equal when they are the same
            return known
        plan = RoundPlan(
            pending=works,
            digest=sum(map(_DIGEST, works)) & MASK,
            joins=JOIN in map(_NAME, works),
        )
        # Nothing else is kept: a plan would keep the arrays of its works alive.
        if len(works) > 1 and all(map(_REPEATED, works)):
            if len(self._plans) >= MOST_ROUND_PLANS:
                self._plans.clear()
            self._plans[key] = plan
        return plan

    def close(self) -> None:
        """Forget them: what they pack looks at the ranks' memory."""
        self._plans.clear()
