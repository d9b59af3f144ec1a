"""Versions of libraries on a host, to be compared. Pure."""

from __future__ import annotations

import re

from ringleader.fabric.facts import HostFacts, MpiFacts

Version = tuple[int, ...]
UCX_LIBRARY = "libucp.so.0"


def version_of(text: str) -> Version | None:
    """Return the numbers of a version (``2.21.5+cuda12.4`` is 2, 21, 5); ``None``: there are none."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in found[0].split(".")) if found else None


def nccl_version(facts: HostFacts) -> Version | None:
    """Return the version of the NCCL that PyTorch would load; ``None``: there is none, or it is unknown."""
    first = facts.software.nccl[0].version if facts.software.nccl else ""
    return version_of(first or facts.software.torch_nccl)


def kernel_is_older(facts: HostFacts, wanted: Version) -> bool:
    """Tell whether the kernel is known and older than a version."""
    found = version_of(facts.kernel)
    return found is not None and found < wanted


def first_mpi(facts: HostFacts) -> MpiFacts | None:
    """Return the MPI that ``ringleader run`` would take; ``None``: there is none."""
    return facts.software.mpis[0] if facts.software.mpis else None


def has_ucx(facts: HostFacts) -> bool:
    """Tell whether anything here uses UCX: the system's library, or the one inside the MPI."""
    library, mpi = facts.library(UCX_LIBRARY), first_mpi(facts)
    return bool(library and library.path) or bool(mpi and mpi.built_with.get("ucx"))


def shown(version: Version) -> str:
    """Return a version as people write it."""
    return ".".join(map(str, version))
