"""What a recipe chooses, as far as it must fit together. Each block says what it chooses. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The choices that are checked against each other. Empty: not chosen."""

    base: str = ""
    """Reference of the image to begin with."""
    base_like: str = ""
    build_base: str = ""
    python: str = ""
    """Version that was asked for; empty: the base's."""
    python_source: str = "base"
    torch: str = ""
    torch_variant: str = ""
    """Empty: what PyPI has."""
    torchvision: str = ""
    tensorflow: str = ""
    tensorflow_gpu: bool = True
    bazel: str = ""
    """What it is compiled with, in the build stage; empty: it is a wheel."""
    mxnet: str = ""
    mxnet_variant: str = ""
    horovod: str = ""
    horovod_gpu: str = ""
    cuda: str = ""
    """What the block ``cuda`` says, else what the base's tag says."""
    cudnn: str = ""
    nccl: str = ""
    """NCCL of the system, beside those in wheels."""
    gpus: tuple[str, ...] = ()
    driver: str = ""
    network: str = ""
    mpi: str = ""
    """``openmpi`` or ``mpich``."""
    mpi_version: str = ""
    mpi_source: str = "base"
    ucx: str = ""
    ucx_source: str = ""
    """``base`` or ``build``; empty: no UCX."""
    libfabric: str = ""
    libfabric_source: str = ""
    """``base`` or ``build``; empty: no libfabric."""
    rdma: str = ""
    rdma_version: str = ""
    apt: tuple[str, ...] = ()
    """Names of the packages that the user asks for."""
    has_ringleader: bool = False
    historical: bool = False
    is_root: bool = False
    keys: str = ""
    """``mounted`` or ``in-image``; empty: no sshd."""
    port: int = 0
    """Of sshd; 0: none."""
    lock: str = ""
    gcc: str = ""
    unverified: tuple[str, ...] = ()
    """What is fetched without a checksum: ``Open MPI 5.0.99``."""
    variables: tuple[tuple[str, str], ...] = ()
    """The user's own."""
    apt_mirror: str = ""
    """URL of the mirror that apt asks."""
    copied: tuple[str, ...] = ()
    """The user's own files, by their paths in the build context."""
