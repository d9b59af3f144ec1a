"""What NVIDIA releases: drivers, images of CUDA, architectures, GPUs, NCCL, cuDNN. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.finding import Cited
from ringleader.images.tables.toml_rows import TableRow


@dataclass(frozen=True, kw_only=True)
class Driver(TableRow):
    """The lowest driver on which a CUDA runs."""

    cuda: str
    """A release, or a whole major release."""
    floor: str

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        return Cited(row=f"driver of CUDA {self.cuda}", says=f"≥ {self.floor}", source=self.source)


@dataclass(frozen=True, kw_only=True)
class CudaRelease(TableRow):
    """One release of CUDA with its images ``nvidia/cuda``."""

    cuda: str
    tags: tuple[str, ...]
    """Versions that tags begin with."""
    bases: tuple[str, ...]
    """Operating systems that they were seen with."""
    deleted: bool = False
    """True: the registry has them no more."""

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        gone = "deleted from the registry; were " if self.deleted else ""
        says = f"{gone}{', '.join(self.tags)} on {', '.join(self.bases)}"
        return Cited(row=f"nvidia/cuda {self.cuda}", says=says, source=self.source)


@dataclass(frozen=True, kw_only=True)
class Architecture(TableRow):
    """Which CUDA compiles for a compute capability."""

    capability: str
    name: str
    first_cuda: str
    last_cuda: str = ""
    """Empty: still."""
    last_driver: str = ""
    """The last branch of drivers that knows it; empty: still."""

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        last = f" to {self.last_cuda}" if self.last_cuda else " and newer"
        driver = f", drivers to {self.last_driver}" if self.last_driver else ""
        says = f"CUDA {self.first_cuda}{last}{driver}"
        return Cited(row=f"{self.name} ({self.capability})", says=says, source=self.source)


@dataclass(frozen=True, kw_only=True)
class Gpu(TableRow):
    """One GPU."""

    name: str
    capability: str

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        return Cited(row=f"gpu {self.name}", says=f"compute capability {self.capability}", source=self.source)


@dataclass(frozen=True, kw_only=True)
class Nccl(TableRow):
    """One release of NCCL."""

    version: str
    cuda: tuple[str, ...]
    """Major releases of CUDA that it was seen with."""

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        return Cited(row=f"nccl {self.version}", says=f"for CUDA {', '.join(self.cuda)}", source=self.source)


@dataclass(frozen=True, kw_only=True)
class Cudnn(TableRow):
    """One release of cuDNN as a package of its own."""

    version: str
    cuda: tuple[str, ...]
    """Releases of CUDA that it was seen with."""

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        return Cited(row=f"cudnn {self.version}", says=f"for CUDA {', '.join(self.cuda)}", source=self.source)
