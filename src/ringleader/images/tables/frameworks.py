"""Frameworks: which releases there are, what their wheels bring and what they run under. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.finding import Cited
from ringleader.images.tables.toml_rows import TableRow


@dataclass(frozen=True, kw_only=True)
class TorchRelease(TableRow):
    """One series of PyTorch, such as 2.8."""

    series: str
    versions: tuple[tuple[str, str], ...]
    """Release → the torchvision that goes with it."""
    pythons: tuple[str, ...]
    """Those that it has wheels for."""
    glibc: str
    """The lowest one, by the wheels' names."""
    variant: str
    """What PyPI has."""

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        says = f"Python {self.pythons[0]}–{self.pythons[-1]}, glibc ≥ {self.glibc}, PyPI has {self.variant}"
        return Cited(row=f"torch {self.series}", says=says, source=self.source)


@dataclass(frozen=True, kw_only=True)
class TorchWheel(TableRow):
    """One variant of a series: what its wheel brings."""

    series: str
    variant: str
    cuda: str = ""
    """Empty: for CPUs."""
    cudnn: str = ""
    nccl: str = ""
    """Empty: not known here."""
    archs: tuple[str, ...] = ()
    """Compute capabilities that it was compiled for; empty: not known here."""
    ptx: str = ""
    """The one whose intermediate code is in it too: newer GPUs compile that at the first use."""

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        parts = [f"CUDA {self.cuda}" if self.cuda else "no CUDA"]
        parts += [f"cuDNN {self.cudnn}"] if self.cudnn else []
        parts += [f"NCCL {self.nccl}"] if self.nccl else []
        if self.archs:
            parts.append(f"compiled for {self.archs[0]}–{self.archs[-1]}{'+PTX' if self.ptx else ''}")
        return Cited(row=f"torch {self.series} {self.variant}", says=", ".join(parts), source=self.source)


@dataclass(frozen=True, kw_only=True)
class TensorflowRelease(TableRow):
    """One series of TensorFlow."""

    series: str
    versions: tuple[str, ...]
    pythons: tuple[str, ...]
    glibc: str
    gpu_package: str
    """What pip installs for GPUs."""
    cuda: str
    cuda_below: str = ""
    """Any CUDA from ``cuda`` to below this one goes; empty: that release alone."""
    cudnn: str = ""
    nccl: str = ""
    bazel: str = ""
    """What it was compiled with, where that matters: TensorFlow 1 knows a narrow range of Bazels."""

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        below = f" to below {self.cuda_below}" if self.cuda_below else ""
        says = f"Python {self.pythons[0]}–{self.pythons[-1]}, CUDA {self.cuda}{below}, cuDNN {self.cudnn}"
        return Cited(row=f"tensorflow {self.series}", says=says, source=self.source)


@dataclass(frozen=True, kw_only=True)
class MxnetWheel(TableRow):
    """One of MXNet's packages."""

    variant: str
    """``cu90``: mxnet-cu90; ``cpu``: mxnet."""
    versions: tuple[str, ...]
    cuda: str = ""

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        says = f"{f'CUDA {self.cuda}' if self.cuda else 'no CUDA'}; {', '.join(self.versions)}"
        name = "mxnet" if self.variant == "cpu" else f"mxnet-{self.variant}"
        return Cited(row=name, says=says, source=self.source)


@dataclass(frozen=True, kw_only=True)
class HorovodReleases(TableRow):
    """What pip can install of Horovod."""

    versions: tuple[str, ...]

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        return Cited(row="horovod", says=f"{self.versions[0]} … {self.versions[-1]}", source=self.source)


@dataclass(frozen=True, kw_only=True)
class HorovodSet(TableRow):
    """What Horovod's own Dockerfile of a tag puts together."""

    version: str
    base: str
    cuda: str
    cudnn: str
    nccl: str = ""
    tensorflow: str = ""
    torch: str = ""
    mxnet: str = ""
    pythons: tuple[str, ...] = ()

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        parts = [f"CUDA {self.cuda}", f"cuDNN {self.cudnn}"]
        names = (("NCCL", self.nccl), ("TensorFlow", self.tensorflow), ("PyTorch", self.torch))
        parts += [f"{name} {version}" for name, version in (*names, ("MXNet", self.mxnet)) if version]
        return Cited(row=f"horovod {self.version}", says=", ".join(parts), source=self.source)
