"""Version tables: what exists, and what goes with what. Data in ``data/*.toml``, each row with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ringleader.finding import Cited
from ringleader.images.tables.bases import Base, Packaged, bases
from ringleader.images.tables.frameworks import (
    HorovodReleases,
    HorovodSet,
    MxnetWheel,
    TensorflowRelease,
    TorchRelease,
    TorchWheel,
)
from ringleader.images.tables.nvidia import Architecture, CudaRelease, Cudnn, Driver, Gpu, Nccl
from ringleader.images.tables.toml_rows import TableRow, read, rows, rows_by
from ringleader.images.tables.version_order import matches, series


@dataclass(frozen=True, kw_only=True)
class MpiSeries(TableRow):
    """One series of an MPI."""

    kind: str
    """``openmpi`` or ``mpich``."""
    series: str
    versions: tuple[str, ...]
    """Those that the tables know, not all there are."""
    openib: bool
    """True: InfiniBand and RoCE work without UCX."""
    launcher: str
    """How its launcher's variables begin: ``orte``, ``prte``, ``hydra``."""

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        has = "has the openib BTL" if self.openib else "has no openib BTL"
        return Cited(row=f"{self.kind} {self.series}", says=has, source=self.source)


@dataclass(frozen=True, kw_only=True)
class UcxFloor(TableRow):
    """The oldest UCX that an MPI is built with."""

    mpi: str
    series: str
    ucx: str

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        return Cited(row=f"{self.mpi} {self.series}", says=f"UCX ≥ {self.ucx}", source=self.source)


@dataclass(frozen=True, kw_only=True)
class UserSpace(TableRow):
    """One user space of RDMA NICs."""

    name: str
    bases: tuple[str, ...]
    """Where it is known to install."""
    networks: tuple[str, ...]
    """What its providers drive."""
    replaces: tuple[str, ...] = ()
    """Packages of the base that must not be asked for beside it."""

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        says = f"for {', '.join(self.networks)}; on {', '.join(self.bases)}"
        return Cited(row=f"rdma {self.name}", says=says, source=self.source)


@dataclass(frozen=True, kw_only=True)
class Rule(TableRow):
    """A limit that is no row of another table."""

    name: str
    value: str
    says: str

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        return Cited(row=f"{self.name} {self.value}", says=self.says, source=self.source)


__all__ = ["Base", "Cited", "Packaged", "Tables", "load"]


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Every table, each in the order of its file: oldest first."""

    bases: tuple[Base, ...]
    packaged: Mapping[str, Packaged]
    """By the base's name."""
    torch: tuple[TorchRelease, ...]
    torch_wheels: tuple[TorchWheel, ...]
    tensorflow: tuple[TensorflowRelease, ...]
    mxnet: Mapping[str, MxnetWheel]
    """By variant."""
    horovod: HorovodReleases
    horovod_sets: tuple[HorovodSet, ...]
    drivers: tuple[Driver, ...]
    cuda: tuple[CudaRelease, ...]
    architectures: Mapping[str, Architecture]
    """Which CUDA compiles for a compute capability."""
    gpus: tuple[Gpu, ...]
    nccl: tuple[Nccl, ...]
    cudnn: tuple[Cudnn, ...]
    mpi: tuple[MpiSeries, ...]
    ucx_floors: tuple[UcxFloor, ...]
    user_spaces: Mapping[str, UserSpace]
    """Of RDMA NICs, by name."""
    rules: Mapping[str, Rule]
    """Limits by name."""

    def base(self, name: str) -> Base | None:
        """Return an operating system by the tables' name."""
        return next((row for row in self.bases if row.name == name), None)

    def torch_release(self, version: str) -> TorchRelease | None:
        """Return the series of an existing release of PyTorch; None where there is no such release."""
        bare = version.partition("+")[0]
        return next((row for row in self.torch if bare in dict(row.versions)), None)

    def torch_wheel(self, release: str, variant: str) -> TorchWheel | None:
        """Return what a variant of a series brings."""
        found = (row for row in self.torch_wheels if (row.series, row.variant) == (release, variant))
        return next(found, None)

    def tensorflow_release(self, version: str) -> TensorflowRelease | None:
        """Return the series of an existing release of TensorFlow."""
        return next((row for row in self.tensorflow if version in row.versions), None)

    def cuda_release(self, version: str) -> CudaRelease | None:
        """Return the images of a CUDA, given as ``12.8`` or ``12.8.1``."""
        return next((row for row in self.cuda if matches(version, row.cuda)), None)

    def driver(self, cuda: str) -> Driver | None:
        """Return the lowest driver of a CUDA: of the release, else of its major release."""
        exact = (row for row in self.drivers if row.cuda in (series(cuda), series(cuda, 1)))
        return next(exact, None)

    def gpu(self, name: str) -> Gpu | None:
        """Return a GPU by name, however it is written: ``H100``, ``RTX 4090``."""
        plain = name.lower().replace(" ", "").replace("-", "").replace("_", "")
        return next((row for row in self.gpus if row.name == plain), None)

    def mpi_series(self, kind: str, version: str) -> MpiSeries | None:
        """Return the series of an MPI's release, whether or not the tables know that very release."""
        return next((row for row in self.mpi if row.kind == kind and matches(version, row.series)), None)


FILES = ("bases", "torch", "tensorflow", "mxnet", "horovod", "nvidia", "nccl", "mpi", "rdma", "rules")


@cache
def load() -> Tables:
    """Return all tables, read once. ValueError for a row that is not well-formed (a test reads them all)."""
    files = {name: read(name) for name in FILES}
    return Tables(
        bases=bases(),
        packaged=rows_by("base", Packaged, files["bases"]["packaged"]),
        torch=rows(TorchRelease, files["torch"]["release"]),
        torch_wheels=rows(TorchWheel, files["torch"]["wheel"]),
        tensorflow=rows(TensorflowRelease, files["tensorflow"]["release"]),
        mxnet=rows_by("variant", MxnetWheel, files["mxnet"]["wheel"]),
        horovod=rows(HorovodReleases, files["horovod"]["release"])[0],
        horovod_sets=rows(HorovodSet, files["horovod"]["set"]),
        drivers=rows(Driver, files["nvidia"]["driver"]),
        cuda=rows(CudaRelease, files["nvidia"]["image"]),
        architectures=rows_by("capability", Architecture, files["nvidia"]["architecture"]),
        gpus=rows(Gpu, files["nvidia"]["gpu"]),
        nccl=rows(Nccl, files["nccl"]["nccl"]),
        cudnn=rows(Cudnn, files["nccl"]["cudnn"]),
        mpi=rows(MpiSeries, files["mpi"]["release"]),
        ucx_floors=rows(UcxFloor, files["mpi"]["floor"]),
        user_spaces=rows_by("name", UserSpace, files["rdma"]["user-space"]),
        rules=rows_by("name", Rule, files["rules"]["rule"]),
    )
