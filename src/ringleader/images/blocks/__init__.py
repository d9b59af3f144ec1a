"""Blocks: the parts of an image, each with a build half and a run-time half."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ringleader.images.blocks import (
    account,
    cuda,
    cudnn,
    files,
    gcc,
    horovod,
    libfabric,
    mpi,
    mxnet,
    nccl,
    packages,
    python,
    rdma,
    ringleader,
    sshd,
    tensorflow,
    tensorflow_source,
    torch,
    ucx,
)
from ringleader.images.stage_steps import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of block."""

    name: str
    """Its table in a recipe."""
    arguments: type[Any]
    """Frozen dataclass; its fields are the table's keys, with - for _."""
    halves: Callable[[Any, Setting], Halves]


KINDS: tuple[Kind, ...] = (
    Kind(name="python", arguments=python.Python, halves=python.halves),
    Kind(name="gcc", arguments=gcc.Gcc, halves=gcc.halves),
    Kind(name="cuda", arguments=cuda.Cuda, halves=cuda.halves),
    Kind(name="cudnn", arguments=cudnn.Cudnn, halves=cudnn.halves),
    Kind(name="nccl", arguments=nccl.Nccl, halves=nccl.halves),
    Kind(name="rdma", arguments=rdma.Rdma, halves=rdma.halves),
    Kind(name="libfabric", arguments=libfabric.Libfabric, halves=libfabric.halves),
    Kind(name="ucx", arguments=ucx.Ucx, halves=ucx.halves),
    Kind(name="mpi", arguments=mpi.Mpi, halves=mpi.halves),
    Kind(
        name="tensorflow-source",
        arguments=tensorflow_source.TensorflowSource,
        halves=tensorflow_source.halves,
    ),
    Kind(name="tensorflow", arguments=tensorflow.Tensorflow, halves=tensorflow.halves),
    Kind(name="torch", arguments=torch.Torch, halves=torch.halves),
    Kind(name="mxnet", arguments=mxnet.Mxnet, halves=mxnet.halves),
    Kind(name="horovod", arguments=horovod.Horovod, halves=horovod.halves),
    Kind(name="ringleader", arguments=ringleader.Ringleader, halves=ringleader.halves),
    Kind(name="packages", arguments=packages.Packages, halves=packages.halves),
    Kind(name="files", arguments=files.Files, halves=files.halves),
    Kind(name="sshd", arguments=sshd.Sshd, halves=sshd.halves),
    Kind(name="account", arguments=account.Account, halves=account.halves),
)
"""Every kind, in the order in which blocks take effect, whatever a recipe's order."""
