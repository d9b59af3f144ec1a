"""Operating systems on which images stand, and what they package. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ringleader.finding import Cited
from ringleader.images.tables.toml_rows import TableRow, read, rows


@dataclass(frozen=True, kw_only=True)
class Base(TableRow):
    """One release of one distribution."""

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

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        says = f"Python {', '.join(self.pythons)}; glibc {self.glibc}; free support until {self.end_of_life}"
        return Cited(row=self.name, says=says, source=self.source)


@dataclass(frozen=True, kw_only=True)
class Packaged(TableRow):
    """Versions of what a base packages; empty: it is not in the release."""

    base: str
    gcc: str = ""
    """Of the package gcc."""
    compilers: tuple[str, ...] = ()
    """N of all its packages ``g++-N``."""
    openssh: str = ""
    openmpi: str = ""
    mpich: str = ""
    ucx: str = ""
    libfabric: str = ""
    rdma_core: str = ""
    perftest: str = ""

    def version(self, name: str) -> str:
        """Return the version of ``openmpi``, ``rdma-core`` and the like; empty: none."""
        return str(getattr(self, name.replace("-", "_")))

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        names = ("openmpi", "mpich", "ucx", "libfabric", "rdma-core")
        says = ", ".join(f"{name} {self.version(name) or 'none'}" for name in names)
        return Cited(row=f"packages of {self.base}", says=says, source=self.source)


@cache
def bases() -> tuple[Base, ...]:
    """Return all rows, in the order of the table."""
    return rows(Base, read("bases")["base"])
