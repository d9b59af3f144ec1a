"""The Pods of a job, sorted by what they are to it, and how they are counted in its status. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ringleader.controller.decide.decision import Observed, PodFacts
from ringleader.controller.decide.ownership import is_going, is_launcher_of, is_worker_of
from ringleader.kube.cluster import Object
from ringleader.mpijob.model import MPIJob
from ringleader.mpijob.status import ReplicaStatus


@dataclass(frozen=True, kw_only=True)
class Pods:
    """The Pods of one job."""

    workers: Mapping[int, PodFacts]
    """Those that are wanted, by index."""
    surplus: tuple[PodFacts, ...]
    """Workers beyond the number that is wanted."""
    launchers: tuple[PodFacts, ...]
    """Pods of the launcher's present Job, oldest first."""
    remains: tuple[PodFacts, ...]
    """Pods of an earlier launcher's Job of this name that is being cleared away: left alone."""
    missing: tuple[int, ...]
    """Indices of workers that are wanted and not there."""

    @property
    def running_workers(self) -> tuple[int, ...]:
        """Indices of the wanted workers that run and are to stay."""
        return tuple(
            index
            for index, pod in sorted(self.workers.items())
            if pod.phase == "Running" and not pod.is_deleting
        )

    @property
    def are_ready(self) -> bool:
        """Every wanted worker is ready and is to stay."""
        return not self.missing and all(pod.is_ready and not pod.is_deleting for pod in self.workers.values())

    @property
    def has_launched(self) -> bool:
        """A launcher has ended well: that its Job is complete is only a matter of time."""
        return any(pod.phase == "Succeeded" for pod in self.launchers)

    @property
    def all_workers(self) -> tuple[PodFacts, ...]:
        """Workers, wanted or not, in the order of their indices."""
        return (*(pod for _, pod in sorted(self.workers.items())), *self.surplus)


def pods_of(job: MPIJob, observed: Observed) -> Pods:
    """Sort a job's Pods; those of others are left out."""
    workers: dict[int, PodFacts] = {}
    surplus: list[PodFacts] = []
    launchers: list[PodFacts] = []
    remains: list[PodFacts] = []
    launcher_uid = uid_of(observed.launcher)
    for pod in observed.pods:
        if is_worker_of(job, pod):
            if pod.index is not None and 0 <= pod.index < job.workers:
                workers[pod.index] = pod
            else:
                surplus.append(pod)
        elif is_launcher_of(job, pod):
            (launchers if pod.owner_uid == launcher_uid else remains).append(pod)
    launchers.sort(key=lambda pod: (pod.created_at, pod.name))
    surplus.sort(key=lambda pod: (pod.index or 0, pod.name))
    missing = tuple(index for index in range(job.workers) if index not in workers)
    return Pods(
        workers=workers,
        surplus=tuple(surplus),
        launchers=tuple(launchers),
        remains=tuple(remains),
        missing=missing,
    )


def uid_of(document: Object | None) -> str:
    """Return an object's uid; empty where there is no object."""
    return "" if document is None else str(document.get("metadata", {}).get("uid", ""))


def workers_status(pods: Pods) -> ReplicaStatus:
    """Count workers by phase; those that are pending count nowhere."""
    phases = [pod.phase for pod in pods.workers.values()]
    return ReplicaStatus(
        active=phases.count("Running"), succeeded=phases.count("Succeeded"), failed=phases.count("Failed")
    )


def launcher_status(launcher: Object, pods: Pods) -> ReplicaStatus:
    """Count the launcher's Pods: those that run by the Pods, every failed attempt by the Job."""
    failed = int(launcher.get("status", {}).get("failed") or 0)
    return ReplicaStatus(active=running_launchers(pods), failed=failed)


def running_launchers(pods: Pods) -> int:
    """Return how many of the launcher's Pods run."""
    return sum(pod.phase == "Running" for pod in pods.launchers)


def is_running(launcher: Object | None, pods: Pods) -> bool:
    """Say whether the launcher and all workers run."""
    if launcher is None or is_going(launcher) or pods.missing:
        return False
    return running_launchers(pods) >= 1 and all(pod.phase == "Running" for pod in pods.workers.values())
