"""Names of what an MPIJob becomes on a cluster, and what a job's own name must be for all of them to work."""

from __future__ import annotations

import re

LONGEST_LABEL = 63
"""Characters in a DNS label (RFC 1035)."""
LABEL = r"[a-z]([-a-z0-9]*[a-z0-9])?"
"""A DNS label that begins with a letter; its length is another rule."""
GENERATED = 5
"""Characters that the API server adds to ``generateName``."""
HOSTFILE = "hostfile"
MOUNT_PATH = "/etc/mpi"
"""Where all Pods of a job have its ConfigMap."""
HOSTFILE_PATH = f"{MOUNT_PATH}/{HOSTFILE}"


def worker(job: str, index: int) -> str:
    """Return the name, and host name, of a worker's Pod."""
    return f"{job}-worker-{index}"


def launcher(job: str) -> str:
    """Return the name of the launcher's Job and the host name of its Pods."""
    return f"{job}-launcher"


def config(job: str) -> str:
    """Return the name of the ConfigMap with the hostfile."""
    return f"{job}-config"


def ssh(job: str) -> str:
    """Return the name of the Secret with the keys."""
    return f"{job}-ssh"


def service(job: str) -> str:
    """Return the name of the Service that gives the Pods their names in DNS."""
    return job


def fault_of_name(job: str, workers: int) -> tuple[str, str] | None:
    """Return what is wrong with a job's name and what to do, or ``None``.

    The longest name made of it is that of the last worker (counted as one where there is none): what holds
    for that Pod's name holds for the launcher's and the Service's, which are no longer.
    """
    longest = worker(job, max(1, workers) - 1)
    if not re.fullmatch(LABEL, longest):
        what = f"{job!r} makes the Pod name {longest!r}, which is not a DNS label"
        return what, "use a-z, 0-9 and -, with a letter first; no dots, no capitals"
    if len(longest) > LONGEST_LABEL:
        what = f"{job!r} makes the Pod name {longest!r} of {len(longest)} characters"
        return what, f"at most {LONGEST_LABEL}: shorten it by {len(longest) - LONGEST_LABEL}"
    return None


def is_namespace(name: str) -> bool:
    """Say whether a namespace may have this name: a DNS label, a digit first allowed."""
    return len(name) <= LONGEST_LABEL and re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) is not None
