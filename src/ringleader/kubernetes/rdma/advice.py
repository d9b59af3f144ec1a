"""What somebody should know who asks for NICs: for people, beside what is rendered. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringleader.kubernetes.rdma.allocation import NicAllocation
from ringleader.render.rdma_profiles import Counts


def advice_on(allocation: NicAllocation, *, is_root: bool | None) -> tuple[str, ...]:
    """Return the remarks, one sentence each. ``is_root``: the container's user is 0; ``None``: not known."""
    profile = allocation.profile
    found = []
    if profile.counts is Counts.NICS and not allocation.is_counted:
        found.append(f"one NIC for each worker, as nothing else was asked for ({allocation.resource})")
    if profile.advice:
        found.append(profile.advice)
    if profile.shm_size and not allocation.shm_size:
        found.append("/dev/shm stays at the runtime's 64 MiB, and NCCL fails to extend it there")
    if profile.ipc_lock and not allocation.privileged:
        found.append(_memory_lock(is_root))
        found.append(
            "namespaces of the Pod security levels baseline and restricted refuse IPC_LOCK: kubectl label "
            "namespace NAMESPACE pod-security.kubernetes.io/enforce=privileged"
        )
    if allocation.privileged:
        found.append(
            "the workers are privileged and see the host's devices: only the Pod security level privileged "
            "allows it"
        )
    return tuple(found)


def runs_as_root(spec: Mapping[str, Any]) -> bool | None:
    """Return whether a Pod's first container runs as user 0; ``None``: only its image knows."""
    rights = {**(spec.get("securityContext") or {}), **(spec["containers"][0].get("securityContext") or {})}
    if rights.get("runAsUser") is not None:
        return bool(rights["runAsUser"] == 0)
    return False if rights.get("runAsNonRoot") else None


def _memory_lock(is_root: bool | None) -> str:
    if is_root is False:
        return (
            "IPC_LOCK is without effect here: the container's user is not root, Kubernetes has no field for "
            "ulimit -l, and registering memory fails with 'Cannot allocate memory'. Run as root, or set "
            "LimitMEMLOCK=infinity for the nodes' container runtime"
        )
    return (
        "IPC_LOCK works for root only; where the image's user is another, set LimitMEMLOCK=infinity for the "
        "nodes' container runtime (Kubernetes has no field for ulimit -l)"
    )
