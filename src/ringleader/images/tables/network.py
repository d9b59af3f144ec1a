"""MPIs, the UCX below them, and the user spaces of RDMA NICs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.finding import Cited
from ringleader.images.tables.toml_rows import TableRow


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
