"""Every MPI that is installed here, the one that ``ringleader run`` takes first."""

from __future__ import annotations

import dataclasses
import mmap
from collections.abc import Mapping
from pathlib import Path

from ringleader.fabric.facts import HostFacts, MpiFacts
from ringleader.job import Family, Mpi
from ringleader.launch.mpirun import mpi_discovery

FAMILIES = {Family.OPENMPI4: "Open MPI", Family.OPENMPI5: "Open MPI", Family.MPICH: "MPICH"}
SIGNS = {"ucx": (b"mca_pml_ucx", b"ucp_init"), "ofi": (b"mca_mtl_ofi", b"fi_getinfo")}
"""What an MPI is built with → names that its library then holds, Open MPI's and others'."""


def with_mpis(facts: HostFacts, environ: Mapping[str, str]) -> HostFacts:
    """Return a host's facts with the MPIs of this machine; those that the facts name already stay.

    A launcher that is no embedded wheel is started once with ``--version``: no file says what it is.
    """
    if facts.software.mpis:
        return facts
    found = tuple(facts_of(one) for one in mpi_discovery.every_mpi(environ))
    return dataclasses.replace(facts, software=dataclasses.replace(facts.software, mpis=found))


def facts_of(mpi: Mpi) -> MpiFacts:
    """Return an MPI as a fact."""
    relative = "MVAPICH" if mpi.relative.startswith("MVAPICH") else mpi.relative
    return MpiFacts(
        family=relative or FAMILIES.get(mpi.family, "Intel MPI"),
        version=mpi.version,
        mpirun=mpi.mpirun,
        library=mpi.library,
        embedded=mpi.embedded,
        built_with=built_with(mpi.library),
    )


def built_with(library: str) -> dict[str, bool | None]:
    """Return whether an MPI's library has UCX and libfabric in it; empty: it cannot be read.

    Open MPI 4 loads them from files near it (``openmpi/mca_pml_ucx.so``); newer ones have them inside.
    """
    if not library:
        return {}
    place = Path(library).resolve().parent
    patterns = ("openmpi*/mca_*.so", "openmpi/lib/openmpi*/mca_*.so")
    files = b" ".join(path.name.encode() for pattern in patterns for path in place.glob(pattern))
    try:
        with (
            Path(library).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            return {
                name: any(sign in files or content.find(sign) >= 0 for sign in signs)
                for name, signs in SIGNS.items()
            }
    except (OSError, ValueError):
        return {}
