"""What a recipe chooses, as far as it must fit together. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ringleader.images.blocks.downloads import unverified
from ringleader.images.mirrors import places_of
from ringleader.images.recipe import Recipe
from ringleader.images.tables.bases import find_base, find_cuda_image


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
    tensorflow_compiled: bool = False
    """True: from source, in the build half."""
    bazel: str = ""
    """What it is compiled with then."""
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
    has_ucx: bool = False
    ucx: str = ""
    ucx_source: str = "base"
    has_libfabric: bool = False
    libfabric: str = ""
    libfabric_source: str = "base"
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


def selection_of(recipe: Recipe) -> Selection:
    """Return what a recipe chooses."""
    blocks = recipe.blocks
    cuda_image = find_cuda_image(recipe.base)
    account = blocks.get("account")
    packages = blocks.get("packages")
    return Selection(
        base=recipe.base,
        base_like=recipe.base_like,
        build_base=recipe.build_base,
        gpus=recipe.gpus,
        driver=recipe.driver,
        network=recipe.network,
        historical=recipe.historical,
        cuda=_of(blocks, "cuda", "version") or (cuda_image.version if cuda_image else ""),
        cudnn=_of(blocks, "cudnn", "version"),
        nccl=_of(blocks, "nccl", "version"),
        horovod=_of(blocks, "horovod", "version"),
        horovod_gpu=_of(blocks, "horovod", "gpu_operations"),
        gcc=_of(blocks, "gcc", "version"),
        apt=tuple(name.partition("=")[0] for name in (packages.apt if packages else ())),
        lock=packages.lock if packages else "",
        unverified=() if recipe.historical else tuple(unverified(blocks)),
        apt_mirror=places_of(recipe.mirrors).apt,
        variables=_of(blocks, "files", "env", ()),
        copied=tuple(source for source, _ in _of(blocks, "files", "copy", ())),
        has_ringleader="ringleader" in blocks,
        is_root=account.is_root if account is not None else recipe.historical,
        keys=_of(blocks, "sshd", "keys"),
        port=_of(blocks, "sshd", "port", 0),
        **_python(blocks),
        **_frameworks(blocks),
        **_network(blocks),
    )


def _of(blocks: Any, name: str, field: str, default: Any = "") -> Any:
    """Return one argument of a block; the default where the recipe has no such block."""
    block = blocks.get(name)
    return default if block is None else getattr(block, field)


def _python(blocks: Any) -> dict[str, Any]:
    return {
        "python": _of(blocks, "python", "version"),
        "python_source": _of(blocks, "python", "source", "base"),
    }


def _frameworks(blocks: Any) -> dict[str, Any]:
    compiled = "tensorflow-source" in blocks
    return {
        "torch": _of(blocks, "torch", "version"),
        "torch_variant": _of(blocks, "torch", "variant"),
        "torchvision": _of(blocks, "torch", "torchvision"),
        "tensorflow": _of(blocks, "tensorflow-source" if compiled else "tensorflow", "version"),
        "tensorflow_gpu": compiled or _of(blocks, "tensorflow", "gpu", True),
        "tensorflow_compiled": compiled,
        "bazel": _of(blocks, "tensorflow-source", "bazel"),
        "mxnet": _of(blocks, "mxnet", "version"),
        "mxnet_variant": _of(blocks, "mxnet", "variant"),
    }


def _network(blocks: Any) -> dict[str, Any]:
    return {
        "mpi": _of(blocks, "mpi", "kind"),
        "mpi_version": _of(blocks, "mpi", "version"),
        "mpi_source": _of(blocks, "mpi", "source", "base"),
        "has_ucx": "ucx" in blocks,
        "ucx": _of(blocks, "ucx", "version"),
        "ucx_source": _of(blocks, "ucx", "source", "base"),
        "has_libfabric": "libfabric" in blocks,
        "libfabric": _of(blocks, "libfabric", "version"),
        "libfabric_source": _of(blocks, "libfabric", "source", "base"),
        "rdma": _of(blocks, "rdma", "user_space"),
        "rdma_version": _of(blocks, "rdma", "version"),
    }


def system_of(selection: Selection) -> str:
    """Return the tables' name of the operating system; empty where the reference does not tell."""
    found = find_base(selection.base_like or selection.base)
    return found.name if found else ""
