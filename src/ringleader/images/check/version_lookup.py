"""A selection beside the rows of the tables that it chooses: what every rule reads. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ringleader.finding import Cited
from ringleader.images.base_image import CudaImage, find_base, find_cuda_image
from ringleader.images.selection import Selection
from ringleader.images.tables import Base, Packaged, Tables
from ringleader.images.tables.frameworks import MxnetWheel, TensorflowRelease, TorchRelease, TorchWheel
from ringleader.images.tables.version_order import newest


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
    """What is checked, and the tables."""

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
        return (
            self.tables.tensorflow_release(self.selection.tensorflow) if self.selection.tensorflow else None
        )

    @property
    def tensorflow_brings_cuda(self) -> bool:
        """Tell whether pip brings TensorFlow's CUDA."""
        return (
            self.tensorflow is not None
            and self.selection.tensorflow_gpu
            and self.tensorflow.gpu_package.endswith("[and-cuda]")
        )

    @cached_property
    def mxnet(self) -> MxnetWheel | None:
        variant = self.selection.mxnet_variant or "cpu"
        return self.tables.mxnet.get(variant) if self.selection.mxnet else None

    @cached_property
    def needs(self) -> tuple[Needs, ...]:
        """Return every CUDA in the image, the frameworks' first."""
        found: list[Needs] = []
        wheel, tensorflow = self.torch_wheel, self.tensorflow
        if wheel and wheel.cuda:
            row = wheel.cited()
            found.append(
                Needs(who=self.torch_name, cuda=wheel.cuda, row=row, archs=wheel.archs, ptx=wheel.ptx)
            )
        if tensorflow and self.selection.tensorflow_gpu:
            who = f"TensorFlow {self.selection.tensorflow}"
            found.append(Needs(who=who, cuda=self._tensorflow_cuda(tensorflow), row=tensorflow.cited()))
        if self.mxnet and self.mxnet.cuda:
            who = f"MXNet {self.selection.mxnet}"
            found.append(Needs(who=who, cuda=self.mxnet.cuda, row=self.mxnet.cited()))
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
