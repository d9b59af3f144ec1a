"""RDMA profiles: how a cluster gives NICs to Pods, asked for by name. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ringleader.errors import Fault, RequestError
from ringleader.mpijob.annotations import RDMA_PROFILE
from ringleader.mpijob.model import MPIJob
from ringleader.render.kubernetes.labels import Document

Profile = Callable[[Document], None]
"""Changes a worker's Pod so that it gets its NICs."""

PROFILES: Mapping[str, Profile] = {}
"""Name → profile. None is known yet."""


def give(pod: Document, job: MPIJob, profiles: Mapping[str, Profile] = PROFILES) -> None:
    """Change a worker's Pod as the profile says that the job asks for, if it does."""
    faults = faults_of(job, profiles)
    if faults:
        raise RequestError(faults)
    name = job.metadata.annotations.get(RDMA_PROFILE, "")
    if name:
        profiles[name](pod)


def faults_of(job: MPIJob, profiles: Mapping[str, Profile] = PROFILES) -> tuple[Fault, ...]:
    """Return what is wrong with the profile that a job asks for."""
    name = job.metadata.annotations.get(RDMA_PROFILE, "")
    if not name or name in profiles:
        return ()
    known = f"known here: {', '.join(sorted(profiles))}" if profiles else "no profile is known here"
    where = f"metadata.annotations[{RDMA_PROFILE}]"
    return (Fault(where=where, what=f"there is no RDMA profile {name!r}", hint=known),)
