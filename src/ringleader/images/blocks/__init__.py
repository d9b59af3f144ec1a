"""Blocks: the parts of an image. Each is one file that knows all about itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ringleader.images.base_image import find_base, find_cuda_image
from ringleader.images.blocks.account import Account
from ringleader.images.blocks.block import Block, Conflict, no_python
from ringleader.images.blocks.cuda import Cuda
from ringleader.images.blocks.cudnn import Cudnn
from ringleader.images.blocks.files import Files
from ringleader.images.blocks.gcc import Gcc
from ringleader.images.blocks.horovod import Horovod
from ringleader.images.blocks.libfabric import Libfabric
from ringleader.images.blocks.mpi import Mpi
from ringleader.images.blocks.mxnet import Mxnet
from ringleader.images.blocks.nccl import Nccl
from ringleader.images.blocks.packages import Packages
from ringleader.images.blocks.python import Python
from ringleader.images.blocks.rdma import Rdma
from ringleader.images.blocks.ringleader import Ringleader
from ringleader.images.blocks.sshd import Sshd
from ringleader.images.blocks.tensorflow import Tensorflow
from ringleader.images.blocks.tensorflow_source import TensorflowSource
from ringleader.images.blocks.torch import Torch
from ringleader.images.blocks.ucx import Ucx
from ringleader.images.stage_steps import BlockSteps, ImageContext

KINDS: tuple[type[Block], ...] = (
    *(Python, Gcc, Cuda, Cudnn, Nccl, Rdma, Libfabric, Ucx, Mpi),
    *(TensorflowSource, Tensorflow, Torch, Mxnet, Horovod),
    *(Ringleader, Packages, Files, Sshd, Account),
)
"""Every kind, in the order in which blocks take effect, whatever a recipe's order."""


def steps_of(image: ImageContext) -> list[BlockSteps]:
    """Return what each block of an image does."""
    blocks = [image.blocks[kind.table] for kind in KINDS if kind.table in image.blocks]
    return [block.historical_steps(image) if image.historical else block.steps(image) for block in blocks]


def unverified(blocks: Mapping[str, Block]) -> tuple[str, ...]:
    """Return what a modern image fetches with nothing but TLS to verify it: ``MLNX_OFED 24.10-3.2.5.0``."""
    every = (one for block in blocks.values() for one in block.releases())
    return tuple(
        f"{one.title} {one.version}" for one in every if not one.sha256 and not one.project.is_repository
    )


def conflicts(blocks: Mapping[str, Block], compiled_in: str, *, historical: bool) -> Iterator[Conflict]:
    """Yield every key that cannot have its effect: nothing is ignored in silence.

    ``compiled_in``: reference of the image in which blocks are compiled.
    """
    for block in blocks.values():
        if not historical:
            yield from block.conflicts(blocks, compiled_in)
            yield from block.unknown_releases()
            continue
        found = list(block.historical_conflicts(blocks, compiled_in))
        if block.installed_by_pip and "python" not in blocks:
            found.append(no_python(block.table))
        yield from found or block.unknown_releases()
    if not historical:
        yield from _without_nvcc(blocks, compiled_in)


def _without_nvcc(blocks: Mapping[str, Block], base: str) -> Iterator[Conflict]:
    """Yield that CUDA's compiler is missing, where the name of the image tells it."""
    compiled = [title for block in blocks.values() for title in block.needs_nvcc(blocks)]
    image = find_cuda_image(base)
    bare = find_base(base) is not None if image is None else image.flavour != "devel"
    if compiled and bare:
        yield Conflict(
            path=("build-base",),
            what=f"{' and '.join(compiled)} need CUDA's compiler, which {base} has not",
            hint="an image nvidia/cuda:…-devel-… of the same CUDA and system",
        )
