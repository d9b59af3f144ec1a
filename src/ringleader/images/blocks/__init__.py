"""Blocks: the parts of an image. Each module has those of one subject, ``block`` what they have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ringleader.images.base_image import find_base, find_cuda_image
from ringleader.images.blocks.block import Block, BlockSteps, ImageContext
from ringleader.images.blocks.frameworks import Horovod, Mxnet, Tensorflow, Torch
from ringleader.images.blocks.nvidia import Cuda, Cudnn, Nccl
from ringleader.images.blocks.sshd import Sshd
from ringleader.images.blocks.system import Account, Files, Gcc, Packages, Python, Ringleader
from ringleader.images.blocks.transports import Libfabric, Mpi, Rdma, Ucx
from ringleader.images.recipe import Conflict

KINDS: tuple[type[Block], ...] = (
    *(Python, Gcc, Cuda, Cudnn, Nccl, Rdma, Libfabric, Ucx, Mpi),
    *(Tensorflow, Torch, Mxnet, Horovod),
    *(Ringleader, Packages, Files, Sshd, Account),
)
"""Every kind, in the order in which blocks take effect, whatever a recipe's order."""


def steps_of(image: ImageContext) -> list[BlockSteps]:
    """Return what each block of an image does."""
    return [image.blocks[kind.table].steps(image) for kind in KINDS if kind.table in image.blocks]


def unverified(blocks: Mapping[str, Block]) -> tuple[str, ...]:
    """Return what an image fetches with nothing but TLS to verify it: ``MLNX_OFED 24.10-3.2.5.0``."""
    every = (one for block in blocks.values() for one in block.releases())
    return tuple(
        f"{one.title} {one.version}" for one in every if not one.sha256 and not one.project.is_repository
    )


def conflicts(blocks: Mapping[str, Block], compiled_in: str) -> Iterator[Conflict]:
    """Yield every key that cannot have its effect: nothing is ignored in silence.

    ``compiled_in``: reference of the image in which blocks are compiled.
    """
    for block in blocks.values():
        yield from block.conflicts(blocks, compiled_in)
        yield from block.unknown_releases()
    compiled = [title for block in blocks.values() for title in block.needs_nvcc(blocks)]
    image = find_cuda_image(compiled_in)
    bare = find_base(compiled_in) is not None if image is None else image.flavor != "devel"
    if compiled and bare:
        yield Conflict(
            ("build-base",),
            f"{' and '.join(compiled)} need CUDA's compiler, which {compiled_in} has not",
            "an image nvidia/cuda:…-devel-… of the same CUDA and system",
        )
