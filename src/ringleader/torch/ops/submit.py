"""Tensors as the engine takes them: a description that peers compare, and values in a row."""

from __future__ import annotations

from functools import lru_cache

import torch

from ringleader.collectives.operations import ReduceOp, Signature, Work, signature_digest
from ringleader.torch.kernels import dtype_name

_STRIDED = torch.strided


@lru_cache(maxsize=4096)
def call_for(
    kind: str,
    dtype: str,
    shape: tuple[int, ...],
    device: str,
    op: ReduceOp,
    root: int,
    prescale: float,
    postscale: float,
    note: str,
) -> tuple[Signature, int]:
    """Return a call and its digest. Kept, as most operations of a training come again in every step."""
    signature = Signature(
        kind=kind,
        dtype=dtype,
        shape=tuple(shape),
        device=device,
        op=op,
        root=root,
        prescale=prescale,
        postscale=postscale,
        note=note,
    )
    return signature, signature_digest(signature)


def work_for(
    kind: str,
    tensor: torch.Tensor,
    out: torch.Tensor | None,
    *,
    name: str | None,
    serial: int,
    op: ReduceOp = ReduceOp.SUM,
    root: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
    note: str = "",
    splits: tuple[int, ...] | None = None,
) -> Work:
    """Describe an operation on a tensor that `laid_out` returned."""
    shape = tensor.shape[1:] if kind in ("allgather", "alltoall") else tensor.shape
    device = "cpu" if tensor.is_cpu else tensor.device.type
    signature, digest = call_for(kind, dtype_name(tensor), shape, device, op, root, prescale, postscale, note)
    return Work(signature, digest, name=name, serial=serial, array=tensor, out=out, splits=splits)


def laid_out(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's values, apart from autograd, in contiguous memory on the same device.

    That is the tensor's own memory where it can be, else a copy. `ValueError` for tensors that have none.
    """
    if tensor.layout is not _STRIDED:
        raise ValueError(f"a tensor of layout {tensor.layout} has no values in a row; bring its dense form")
    if not tensor.is_cpu and not tensor.is_cuda:
        raise ValueError(f"tensors on {tensor.device.type} devices cannot be carried; bring them to the CPU")
    data = tensor.detach() if tensor.requires_grad else tensor
    if not data.is_contiguous():
        data = data.contiguous()
    return data.resolve_neg() if data.is_neg() else data


def written_back(out: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself with the result in it, wherever the engine worked."""
    if out is not tensor and out.data_ptr() != tensor.data_ptr():
        with torch.no_grad():
            tensor.copy_(out)
    return tensor


def meeting(kind: str, serial: int) -> Work:
    """Describe an operation without data."""
    signature, digest = call_for(kind, "uint8", (), "cpu", ReduceOp.SUM, 0, 1.0, 1.0, "")
    return Work(signature, digest, name=None, serial=serial, array=None, out=None)
