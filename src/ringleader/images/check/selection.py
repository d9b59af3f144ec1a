"""What a recipe chooses as far as it must fit together, and the rows of the tables that it chooses. Pure.

A field of ``Selection`` names the key of a recipe that it is; recipes become selections by it and back. Rules
(``versions``, ``system``, ``network``) read a ``VersionLookup``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from ringleader.finding import Cited
from ringleader.images.base_image import CudaImage, find_base, find_cuda_image
from ringleader.images.blocks import KINDS, unverified
from ringleader.images.mirrors import places_of
from ringleader.images.recipe import Recipe
from ringleader.images.tables import (
    Base,
    MxnetWheel,
    Packaged,
    Tables,
    TensorflowRelease,
    TorchRelease,
    TorchWheel,
)
from ringleader.images.tables.version_order import newest


def of(key: str, default: Any = "", made: Callable[[Any], Any] | None = None) -> Any:
    """Declare a choice that is a key of a recipe, ``base`` or ``torch.version``; ``made`` of its value."""
    return field(default=default, metadata={"key": key, "made": made})


def _names(packages: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one.partition("=")[0] for one in packages)


def _sources(copied: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return tuple(source for source, _ in copied)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The choices that are checked against each other. Empty: not chosen.

    Of the keys of a block the first one tells whether a selection needs the block.
    """

    base: str = of("base")
    """Reference of the image to begin with."""
    base_like: str = of("base_like")
    build_base: str = of("build_base")
    gpus: tuple[str, ...] = of("gpus", ())
    driver: str = of("driver")
    network: str = of("network")
    python: str = of("python.version")
    """Version that was asked for; empty: the base's."""
    python_source: str = of("python.source", "base")
    torch: str = of("torch.version")
    torch_variant: str = of("torch.variant")
    """Empty: what PyPI has."""
    torchvision: str = of("torch.torchvision")
    tensorflow: str = of("tensorflow.version")
    tensorflow_gpu: bool = of("tensorflow.gpu", True)
    mxnet: str = of("mxnet.version")
    mxnet_variant: str = of("mxnet.variant")
    horovod: str = of("horovod.version")
    horovod_gpu: str = of("horovod.gpu_operations")
    cuda: str = of("cuda.version")
    """What the block ``cuda`` says, else what the base's tag says."""
    cudnn: str = of("cudnn.version")
    nccl: str = of("nccl.version")
    """NCCL of the system, beside those in wheels."""
    mpi: str = of("mpi.kind")
    """``openmpi`` or ``mpich``."""
    mpi_version: str = of("mpi.version")
    mpi_source: str = of("mpi.source", "base")
    ucx_source: str = of("ucx.source")
    """``base`` or ``build``; empty: no UCX."""
    ucx: str = of("ucx.version")
    libfabric_source: str = of("libfabric.source")
    """``base`` or ``build``; empty: no libfabric."""
    libfabric: str = of("libfabric.version")
    rdma: str = of("rdma.user_space")
    rdma_version: str = of("rdma.version")
    gcc: str = of("gcc.version")
    port: int = of("sshd.port", 0)
    """0: no sshd."""
    lock: str = of("packages.lock")
    apt: tuple[str, ...] = of("packages.apt", (), _names)
    """Names of the packages that the user asks for."""
    variables: tuple[tuple[str, str], ...] = of("files.env", ())
    """The user's own."""
    copied: tuple[str, ...] = of("files.copy", (), _sources)
    """The user's own files, by their paths in the build context."""
    is_root: bool = of("account.name", False, "root".__eq__)
    has_ringleader: bool = False
    unverified: tuple[str, ...] = ()
    """What is fetched without a checksum: ``Open MPI 5.0.99``."""
    apt_mirror: str = ""
    """URL of the mirror that apt asks."""


def selection_of(recipe: Recipe) -> Selection:
    """Return what a recipe and its blocks choose."""
    image = find_cuda_image(recipe.base)
    found: dict[str, Any] = {
        "cuda": image.version if image else "",
        "has_ringleader": "ringleader" in recipe.blocks,
        "unverified": unverified(recipe.blocks),
        "apt_mirror": places_of(recipe.mirrors).apt,
    }
    for one in fields(Selection):
        if one.metadata:
            block, _, key = one.metadata["key"].partition(".")
            made = one.metadata["made"]
            if not key:
                found[one.name] = getattr(recipe, block)
            elif block in recipe.blocks:
                value = getattr(recipe.blocks[block], key)
                found[one.name] = made(value) if made else value
    return Selection(**found)


def recipe_of(selection: Selection, name: str) -> Recipe:
    """Return the recipe that chooses this: with the blocks that it needs, and no default one."""
    own: dict[str, Any] = {}
    blocks: dict[str, dict[str, Any]] = defaultdict(dict)
    for one in fields(Selection):
        if one.metadata and one.metadata["made"] is None:
            block, _, key = one.metadata["key"].partition(".")
            (blocks[block] if key else own)[key or block] = getattr(selection, one.name)
    needed = {kind.table: kind for kind in KINDS if next(iter(blocks[kind.table].values()), None)}
    made: dict[str, Any] = {table: kind(**blocks[table]) for table, kind in needed.items()}
    return Recipe(name=name, **own, blocks=made)


@dataclass(frozen=True, kw_only=True)
class Needs:
    """A CUDA that something in the image brings or needs."""

    who: str
    """``PyTorch 2.8.0 (cu128)``."""
    cuda: str
    row: Cited
    archs: tuple[str, ...] = ()
    ptx: str = ""


@dataclass(frozen=True)
class VersionLookup:
    """A selection beside the rows of the tables that it chooses: what every rule reads."""

    selection: Selection
    tables: Tables

    @cached_property
    def base(self) -> Base | None:
        found = find_base(self.selection.base_like or self.selection.base)
        return self.tables.base(found.name) if found else None

    @cached_property
    def packaged(self) -> Packaged | None:
        return self.tables.packaged.get(self.base.name) if self.base else None

    @cached_property
    def cuda_image(self) -> CudaImage | None:
        return find_cuda_image(self.selection.base)

    @cached_property
    def python(self) -> str:
        """The Python of the image; empty where nothing tells."""
        return self.selection.python or (self.base.python if self.base else "")

    @cached_property
    def torch_release(self) -> TorchRelease | None:
        return self.tables.torch_release(self.selection.torch) if self.selection.torch else None

    @cached_property
    def torch_variant(self) -> str:
        """The variant, PyPI's where none was chosen; ``2.8.0+cu126`` chooses too."""
        local = self.selection.torch.partition("+")[2]
        default = self.torch_release.variant if self.torch_release else ""
        return self.selection.torch_variant or local or default

    @cached_property
    def torch_wheel(self) -> TorchWheel | None:
        release = self.torch_release
        return self.tables.torch_wheel(release.series, self.torch_variant) if release else None

    @cached_property
    def torch_name(self) -> str:
        return f"PyTorch {self.selection.torch.partition('+')[0]} ({self.torch_variant or 'no variant'})"

    @cached_property
    def tensorflow(self) -> TensorflowRelease | None:
        version = self.selection.tensorflow
        return self.tables.tensorflow_release(version) if version else None

    @property
    def tensorflow_name(self) -> str:
        return f"TensorFlow {self.selection.tensorflow}"

    @property
    def tensorflow_brings_cuda(self) -> bool:
        """Tell whether pip brings TensorFlow's CUDA."""
        return self.tensorflow is not None and self.selection.tensorflow_gpu and self.tensorflow.brings_cuda

    @cached_property
    def mxnet(self) -> MxnetWheel | None:
        variant = self.selection.mxnet_variant or "cpu"
        return self.tables.mxnet.get(variant) if self.selection.mxnet else None

    @cached_property
    def needs(self) -> tuple[Needs, ...]:
        """Return every CUDA in the image, the frameworks' first."""
        found: list[Needs] = []
        wheel, tensorflow, mxnet = self.torch_wheel, self.tensorflow, self.mxnet
        if wheel and wheel.cuda:
            row = wheel.cited()
            found.append(
                Needs(who=self.torch_name, cuda=wheel.cuda, row=row, archs=wheel.archs, ptx=wheel.ptx)
            )
        if tensorflow and self.selection.tensorflow_gpu:
            cuda = self._tensorflow_cuda(tensorflow)
            found.append(Needs(who=self.tensorflow_name, cuda=cuda, row=tensorflow.cited()))
        if mxnet and mxnet.cuda:
            who = f"MXNet {self.selection.mxnet}"
            found.append(Needs(who=who, cuda=mxnet.cuda, row=mxnet.cited()))
        release = self.tables.cuda_release(self.selection.cuda) if self.selection.cuda else None
        if release:
            found.append(Needs(who="the image", cuda=self.selection.cuda, row=release.cited()))
        return tuple(found)

    def _tensorflow_cuda(self, release: TensorflowRelease) -> str:
        """Return the newest CUDA that a TensorFlow takes."""
        if not release.cuda_below:
            return release.cuda
        major = str(int(release.cuda_below) - 1)
        known = [row.cuda for row in self.tables.cuda if row.cuda.partition(".")[0] == major]
        return newest([release.cuda, *known])
