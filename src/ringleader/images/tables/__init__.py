"""Version tables: what exists, and what goes with what. ``data/*.toml``, each row with its source. Pure.

A table is a dataclass whose fields are the keys of its rows; ``Tables`` has all tables. ``version_order``
compares versions; ``images.base_image`` finds the operating system of an image's reference.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar, TypeVar

from ringleader.finding import Cited
from ringleader.images.tables.version_order import key, matches, series

Row = TypeVar("Row")


class _Texts(tuple[str, ...]):
    """Texts in a template: ``{pythons}`` is all of them, ``{pythons:–}`` the first and the last."""

    def __format__(self, between: str) -> str:
        return f"{self[0]}{between}{self[-1]}" if between else ", ".join(self)


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """What every row has."""

    row: ClassVar[str] = ""
    """How findings call a row, with fields in braces."""
    says: ClassVar[str] = ""
    """What it says, likewise; an empty field reads "none"."""
    source: str = ""
    """Where that is written; empty: nobody looked it up."""

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        return Cited(row=self._filled(self.row), says=self._says(), source=self.source)

    def _says(self) -> str:
        return self._filled(self.says)

    def _filled(self, template: str) -> str:
        values = {name: _Texts(one) if isinstance(one, tuple) else one for name, one in vars(self).items()}
        return template.format_map({name: one or "none" for name, one in values.items()})


@dataclass(frozen=True, kw_only=True)
class Base(TableRow):
    """One release of one distribution: an operating system on which images stand."""

    row = "{name}"
    says = "Python {pythons}; glibc {glibc}; free support until {end_of_life}"
    name: str
    """``debian:12``, ``ubuntu:24.04``."""
    family: str
    """``debian``, ``ubuntu``, ``rocky`` …"""
    version: str
    codename: str = ""
    python: str = ""
    """The version of its package ``python3``, major and minor: ``3.11``."""
    pythons: tuple[str, ...] = ()
    """Every Python that it packages, oldest first."""
    glibc: str = ""
    has_apt: bool = True
    end_of_life: str = ""
    """End of its free support, ``YYYY-MM`` or ``YYYY-MM-DD``; empty: not known here."""


@dataclass(frozen=True, kw_only=True)
class Packaged(TableRow):
    """Versions of what a base packages; empty: it is not in the release."""

    row = "packages of {base}"
    says = "openmpi {openmpi}, mpich {mpich}, ucx {ucx}, libfabric {libfabric}, rdma-core {rdma_core}"
    base: str
    compilers: tuple[str, ...] = ()
    """N of all its packages ``g++-N``."""
    openmpi: str = ""
    mpich: str = ""
    ucx: str = ""
    libfabric: str = ""
    rdma_core: str = ""

    def version(self, name: str) -> str:
        """Return the version of ``openmpi``, ``rdma-core`` and the like; empty: none."""
        return str(getattr(self, name.replace("-", "_")))


@dataclass(frozen=True, kw_only=True)
class TorchRelease(TableRow):
    """One series of PyTorch, such as 2.8."""

    row = "torch {series}"
    says = "Python {pythons:–}, glibc ≥ {glibc}, PyPI has {variant}"
    series: str
    versions: tuple[tuple[str, str], ...]
    """Release → the torchvision that goes with it."""
    pythons: tuple[str, ...]
    """Those that it has wheels for."""
    glibc: str
    """The lowest one, by the wheels' names."""
    variant: str
    """What PyPI has."""


@dataclass(frozen=True, kw_only=True)
class TorchWheel(TableRow):
    """One variant of a series: what its wheel brings."""

    row = "torch {series} {variant}"
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

    def _says(self) -> str:
        parts = [f"CUDA {self.cuda}" if self.cuda else "no CUDA"]
        parts += [f"{name} {one}" for name, one in (("cuDNN", self.cudnn), ("NCCL", self.nccl)) if one]
        if self.archs:
            parts.append(f"compiled for {self.archs[0]}–{self.archs[-1]}{'+PTX' if self.ptx else ''}")
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class TensorflowRelease(TableRow):
    """One series of TensorFlow."""

    row = "tensorflow {series}"
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

    def _says(self) -> str:
        below = f" to below {self.cuda_below}" if self.cuda_below else ""
        return f"Python {self.pythons[0]}–{self.pythons[-1]}, CUDA {self.cuda}{below}, cuDNN {self.cudnn}"

    @property
    def brings_cuda(self) -> bool:
        """Tell whether pip brings its CUDA; older ones take the image's."""
        return self.gpu_package.endswith("[and-cuda]")


@dataclass(frozen=True, kw_only=True)
class MxnetWheel(TableRow):
    """One of MXNet's packages."""

    variant: str
    """``cu90``: mxnet-cu90; ``cpu``: mxnet."""
    versions: tuple[str, ...]
    cuda: str = ""

    def cited(self) -> Cited:
        """Return the row as findings show it, by the package's name."""
        says = f"{f'CUDA {self.cuda}' if self.cuda else 'no CUDA'}; {', '.join(self.versions)}"
        name = "mxnet" if self.variant == "cpu" else f"mxnet-{self.variant}"
        return Cited(row=name, says=says, source=self.source)


@dataclass(frozen=True, kw_only=True)
class HorovodReleases(TableRow):
    """What pip can install of Horovod."""

    row = "horovod"
    says = "{versions: … }"
    versions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class HorovodSet(TableRow):
    """What Horovod's own Dockerfile of a tag puts together."""

    row = "horovod {version}"
    version: str
    base: str
    cuda: str
    cudnn: str
    nccl: str = ""
    tensorflow: str = ""
    torch: str = ""
    mxnet: str = ""
    pythons: tuple[str, ...] = ()

    def _says(self) -> str:
        libraries = (("CUDA", self.cuda), ("cuDNN", self.cudnn), ("NCCL", self.nccl))
        frameworks = (("TensorFlow", self.tensorflow), ("PyTorch", self.torch), ("MXNet", self.mxnet))
        return ", ".join(f"{name} {one}" for name, one in (*libraries, *frameworks) if one)


@dataclass(frozen=True, kw_only=True)
class Driver(TableRow):
    """The lowest driver on which a CUDA runs."""

    row = "driver of CUDA {cuda}"
    says = "≥ {floor}"
    cuda: str
    """A release, or a whole major release."""
    floor: str


@dataclass(frozen=True, kw_only=True)
class CudaRelease(TableRow):
    """One release of CUDA with its images ``nvidia/cuda``."""

    row = "nvidia/cuda {cuda}"
    cuda: str
    tags: tuple[str, ...]
    """Versions that tags begin with."""
    bases: tuple[str, ...]
    """Operating systems that they were seen with."""
    deleted: bool = False
    """True: the registry has them no more."""

    def _says(self) -> str:
        return self._filled(
            f"{'deleted from the registry; were ' if self.deleted else ''}{{tags}} on {{bases}}"
        )


@dataclass(frozen=True, kw_only=True)
class Architecture(TableRow):
    """Which CUDA compiles for a compute capability."""

    row = "{name} ({capability})"
    capability: str
    name: str
    first_cuda: str
    last_cuda: str = ""
    """Empty: still."""
    last_driver: str = ""
    """The last branch of drivers that knows it; empty: still."""

    def _says(self) -> str:
        last = f" to {self.last_cuda}" if self.last_cuda else " and newer"
        return f"CUDA {self.first_cuda}{last}{f', drivers to {self.last_driver}' if self.last_driver else ''}"


@dataclass(frozen=True, kw_only=True)
class Gpu(TableRow):
    """One GPU."""

    row = "gpu {name}"
    says = "compute capability {capability}"
    name: str
    capability: str


@dataclass(frozen=True, kw_only=True)
class CudaLibrary(TableRow):
    """One release of NCCL or cuDNN as its own package."""

    row = "{library} {version}"
    says = "for CUDA {cuda}"
    library: str
    version: str
    cuda: tuple[str, ...]
    """Releases, of NCCL major releases, of CUDA that it was seen with."""


@dataclass(frozen=True, kw_only=True)
class MpiSeries(TableRow):
    """One series of an MPI."""

    row = "{kind} {series}"
    kind: str
    """``openmpi`` or ``mpich``."""
    series: str
    versions: tuple[str, ...]
    """Those that the tables know, not all there are."""
    openib: bool
    """True: InfiniBand and RoCE work without UCX."""

    def _says(self) -> str:
        return "has the openib BTL" if self.openib else "has no openib BTL"


@dataclass(frozen=True, kw_only=True)
class UcxFloor(TableRow):
    """The oldest UCX that an MPI is built with."""

    row = "{mpi} {series}"
    says = "UCX ≥ {ucx}"
    mpi: str
    series: str
    ucx: str


@dataclass(frozen=True, kw_only=True)
class UserSpace(TableRow):
    """One user space of RDMA NICs."""

    row = "rdma {name}"
    says = "for {networks}; on {bases}"
    name: str
    bases: tuple[str, ...]
    """Where it is known to install."""
    networks: tuple[str, ...]
    """What its providers drive."""
    replaces: tuple[str, ...] = ()
    """Packages of the base that must not be asked for beside it."""


@dataclass(frozen=True, kw_only=True)
class Rule(TableRow):
    """A limit that is not a row of another table."""

    row = "{name} {value}"
    name: str
    value: str
    text: str

    def _says(self) -> str:
        return self.text


def _of(place: str, kind: type[TableRow], *, by: str = "") -> Any:
    """Declare a table: ``FILE.NAME`` of its rows; ``by``: the field by whose value they are found."""
    return field(metadata={"place": place, "kind": kind, "by": by})


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Every table, each in the order of its file: oldest first."""

    bases: tuple[Base, ...] = _of("bases.base", Base)
    packaged: Mapping[str, Packaged] = _of("bases.packaged", Packaged, by="base")
    torch: tuple[TorchRelease, ...] = _of("torch.release", TorchRelease)
    torch_wheels: tuple[TorchWheel, ...] = _of("torch.wheel", TorchWheel)
    tensorflow: tuple[TensorflowRelease, ...] = _of("tensorflow.release", TensorflowRelease)
    mxnet: Mapping[str, MxnetWheel] = _of("mxnet.wheel", MxnetWheel, by="variant")
    horovod: tuple[HorovodReleases, ...] = _of("horovod.release", HorovodReleases)
    """One row."""
    horovod_sets: tuple[HorovodSet, ...] = _of("horovod.set", HorovodSet)
    drivers: tuple[Driver, ...] = _of("nvidia.driver", Driver)
    cuda: tuple[CudaRelease, ...] = _of("nvidia.image", CudaRelease)
    architectures: Mapping[str, Architecture] = _of("nvidia.architecture", Architecture, by="capability")
    """Which CUDA compiles for a compute capability."""
    gpus: tuple[Gpu, ...] = _of("nvidia.gpu", Gpu)
    nccl: tuple[CudaLibrary, ...] = _of("nccl.nccl", CudaLibrary)
    cudnn: tuple[CudaLibrary, ...] = _of("nccl.cudnn", CudaLibrary)
    mpi: tuple[MpiSeries, ...] = _of("mpi.release", MpiSeries)
    ucx_floors: tuple[UcxFloor, ...] = _of("mpi.floor", UcxFloor)
    user_spaces: Mapping[str, UserSpace] = _of("rdma.user-space", UserSpace, by="name")
    """Of RDMA NICs, by name."""
    rules: Mapping[str, Rule] = _of("rules.rule", Rule, by="name")
    """Limits by name."""

    def known(self, name: str) -> list[str]:
        """Return every version of a framework, ``cuda``, ``nccl``, ``cudnn`` or ``python``."""
        match name:
            case "torch":
                return [version for row in self.torch for version, _ in row.versions]
            case "tensorflow":
                return [version for row in self.tensorflow for version in row.versions]
            case "horovod":
                return list(self.horovod[0].versions)
            case "cuda":
                return [row.cuda for row in self.cuda]
            case "python":
                lists = [row.pythons for row in self.torch] + [row.pythons for row in self.bases]
                return sorted({python for pythons in lists for python in pythons}, key=key)
        return [row.version for row in getattr(self, name)]

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


@cache
def load() -> Tables:
    """Return all tables, read once. ValueError for a row that is not well-formed (a test reads them all)."""
    found: dict[str, Any] = {}
    for table in fields(Tables):
        file, _, name = table.metadata["place"].partition(".")
        kind, by, raw = table.metadata["kind"], table.metadata["by"], read(file)[name]
        found[table.name] = rows_by(by, kind, raw) if by else rows(kind, raw)
    return Tables(**found)


@cache
def bases() -> tuple[Base, ...]:
    """Return the operating systems, in the order of the table."""
    return rows(Base, read("bases")["base"])


@cache
def read(name: str) -> dict[str, list[dict[str, Any]]]:
    """Return the arrays of tables of ``data/NAME.toml``."""
    text = files(__package__).joinpath("data", f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def rows(kind: type[Row], found: list[dict[str, Any]]) -> tuple[Row, ...]:
    """Return rows as values of a dataclass; ValueError for a missing or unknown key, or a wrong type."""
    return tuple(_row(kind, one) for one in found)


def rows_by(name: str, kind: type[Row], found: list[dict[str, Any]]) -> dict[str, Row]:
    """Return rows by the value of one of their fields. ValueError as ``rows``, and for two of one value."""
    named = {str(getattr(row, name)): row for row in rows(kind, found)}
    if len(named) != len(found):
        raise ValueError(f"{kind.__name__}: two rows of one {name}")
    return named


def _row(kind: type[Row], found: dict[str, Any]) -> Row:
    known: dict[str, Field[Any]] = {one.name: one for one in fields(kind)}  # type: ignore[arg-type]
    for name in found:
        if name not in known:
            raise ValueError(f"{kind.__name__} {found}: unknown key {name}")
    for name, one in known.items():
        if one.default is MISSING and name not in found:
            raise ValueError(f"{kind.__name__} {found}: no {name}")
    return kind(**{name: _value(known[name], value, found) for name, value in found.items()})


def _value(one: Field[Any], value: Any, found: dict[str, Any]) -> Any:
    kind = str(one.type)
    if isinstance(value, list) and kind.startswith("tuple[str"):
        if all(isinstance(text, str) for text in value):
            return tuple(value)
    elif isinstance(value, dict) and kind.startswith("tuple[tuple"):
        return tuple(value.items())
    elif kind == type(value).__name__:
        return value
    raise ValueError(f"{found}: {one.name} is {value!r}, not {kind}")
