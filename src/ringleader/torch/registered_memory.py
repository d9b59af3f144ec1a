"""`registered_empty` and `register_`: tensors in memory that all ranks of a host share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ringleader.adapters.object_exchange import gather_objects
from ringleader.engine.group_engine import Engine
from ringleader.engine.negotiation import numbered
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.torch.torch_kernels import DTYPES

__all__ = ["register_", "registered_empty"]

_EARLIER = "_ringleader_earlier_memory"
"""Attribute of a storage that was moved: the memory that it had. It lives as long as the storage."""


def registered_empty(*size: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a tensor of undefined content whose reductions in place need no copies.

    ``size`` and ``dtype`` are those of `torch.empty`. Every rank calls this at the same point with the same
    ones. `allreduce_` of the tensor, or of the same part of it on every rank, is done where it lies; of 1 MiB
    on one host it takes a third of the time of an ordinary tensor. Where there is no shared memory, an
    ordinary tensor is returned. The memory is given back when the last tensor over it is gone on every
    rank and something else is registered, or by `shutdown`. (NCCL's word for such memory is a registered
    buffer.)
    """
    chosen = dtype or torch.get_default_dtype()
    if chosen not in DTYPES:
        raise ValueError(f"{chosen} is not a type that ranks can exchange")
    engine = PROCESS.get().engine
    region = engine.register(math.prod(size), DTYPES[chosen])
    memory: torch.Tensor = region.mine
    # Nobody but the tensor needs it: it goes with the first registration after the tensor's end.
    engine.release(region)
    return memory.view(size)


def register_(tensor: torch.Tensor) -> torch.Tensor:
    """Move a tensor's storage into memory that the ranks of a host share, and return the tensor.

    **Arrays that NumPy, DLPack or another library took of the tensor before keep the old memory:** they see
    nothing of what happens to the tensor from then on. That cannot be noticed here, so take them anew. The
    old memory stays valid, and taken, as long as the storage lives.

    Afterwards reductions in place cost what those of gradients do, as for a tensor of `registered_empty`. The
    whole storage moves with its values, so all of PyTorch's views of it follow: a parameter, and the tensor
    of which this one is a part. Such a storage cannot be resized.

    Every rank calls this at the same point. `ValueError` on all ranks, with nothing moved, where the tensor
    of any rank is not contiguous, not in host memory, or shared with other processes; where ranks differ in
    type, shape or place within the storage; and where a host has no room in /dev/shm. Where ranks share no
    memory at all nothing moves either, and everything works as before; between hosts such a tensor is reduced
    like any other. The memory is given back as that of `registered_empty` is; after `shutdown` the tensor
    keeps it, with its values.
    """
    engine = PROCESS.get().engine
    storage = tensor.untyped_storage() if tensor.layout is torch.strided else None
    facts = _facts(tensor, storage, engine)
    everybodys = gather_objects(engine, facts, "hvd.register_")
    refused = why_refused(everybodys)
    if refused:
        raise ValueError(refused)
    shared = engine.transport.registered is not None and engine.ranks.size > 1
    locations = {facts["location"] for facts in everybodys}
    at_one_place = len(locations) == 1 and locations != {0}  # they are reduced there already
    if not shared or at_one_place or storage is None or not storage.nbytes():
        return tensor
    _move(engine, storage)
    return tensor


def why_refused(everybodys: Sequence[dict[str, Any]]) -> str:
    """Return why no rank's tensor is moved, empty if they are. ``everybodys``: what ranks said, by rank."""
    faults: dict[str, list[int]] = {}
    for rank, facts in enumerate(everybodys):
        if facts["fault"]:
            faults.setdefault(facts["fault"], []).append(rank)
    if faults:
        return "hvd.register_: " + "; ".join(f"{numbered(ranks)}: {text}" for text, ranks in faults.items())
    said: dict[str, list[int]] = {}
    for rank, facts in enumerate(everybodys):
        said.setdefault(facts["what"], []).append(rank)
    if len(said) > 1:
        parts = "; ".join(f"{numbered(ranks)}: {text}" for text, ranks in said.items())
        return f"hvd.register_: ranks bring different tensors: {parts}"
    return ""


def _facts(tensor: torch.Tensor, storage: torch.UntypedStorage | None, engine: Engine) -> dict[str, Any]:
    """Return what the other ranks learn of this one's tensor."""
    location = 0
    registered, nbytes = engine.transport.registered, tensor.numel() * tensor.itemsize
    if registered is not None and tensor.is_cpu and storage is not None:
        location = registered.location(tensor.data_ptr(), nbytes)
    what = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    if storage is not None and storage.nbytes() != nbytes:
        what += f" at element {tensor.storage_offset()} of a storage of {storage.nbytes()} bytes"
    return {"fault": _fault(tensor, storage, location), "what": what, "location": location}


def _fault(tensor: torch.Tensor, storage: torch.UntypedStorage | None, location: int) -> str:
    """Return why a tensor cannot be reduced in place, or its storage moved, empty if it can."""
    if storage is None:
        return f"a tensor of layout {tensor.layout} is not strided; pass its dense form"
    if not tensor.is_cpu:
        return f"the tensor is on {tensor.device.type}; only host memory can be registered"
    if tensor.dtype not in DTYPES:
        return f"{tensor.dtype} is not a type that ranks can exchange"
    if not tensor.is_contiguous() or tensor.is_neg():
        return "the tensor is not contiguous; pass tensor.contiguous()"
    if not location and storage.is_shared():
        return "the tensor is shared with other processes (share_memory_); pass a clone"
    if not location and not hasattr(storage, "_swap_data_ptr_"):
        return f"PyTorch {torch.__version__} cannot move a storage; take hvd.registered_empty instead"
    return ""


def _move(engine: Engine, storage: torch.UntypedStorage) -> None:
    """Give a storage memory that ranks share, with its values. Collective."""
    region = engine.register(storage.nbytes(), "uint8")
    try:
        if region.segment is None:
            raise ValueError(
                f"hvd.register_: a host has no room in /dev/shm for {storage.nbytes():,} bytes of each "
                "rank (df /dev/shm; for a container --shm-size)"
            )
        place = region.mine.untyped_storage()
        place.copy_(storage)
        storage._swap_data_ptr_(place)  # type: ignore[attr-defined]
        # What another library took of the memory before must not be in memory that is gone.
        setattr(storage, _EARLIER, [*getattr(storage, _EARLIER, ()), place])
    finally:
        engine.release(region)
