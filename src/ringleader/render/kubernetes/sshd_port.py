"""Ports that a job's workers may answer ssh on, as far as its manifest says. Pure."""

from __future__ import annotations

import re
from itertools import pairwise

from ringleader.mpijob.model import MPIJob
from ringleader.render.kubernetes import rdma_annotations

_JOINED = re.compile(r"-p(\d+)|(?:-o)?Port[= ]\s*(\d+)", re.IGNORECASE)


def ssh_ports(job: MPIJob) -> tuple[int, ...]:
    """Return the workers' ports for ssh; none where only their image knows.

    The port of an RDMA profile counts, else a declared port called ``ssh``, else ``-p N`` or ``-o Port=N`` on
    sshd's command line.
    """
    worker = job.spec.mpi_replica_specs.worker
    if worker is None:
        return ()
    of_profile = rdma_annotations.ssh_port(job)
    if of_profile is not None:
        return (of_profile,)
    first = worker.template["spec"]["containers"][0]
    declared = [port for port in first.get("ports") or () if port.get("name") == "ssh"]
    found = [port["containerPort"] for port in declared]
    if not found:
        words = [str(word) for word in (*(first.get("command") or ()), *(first.get("args") or ()))]
        # A shell's script holds its words in one argument.
        found = _of_words([part for word in words for part in word.split()])
    return tuple(dict.fromkeys(port for port in found if 0 < port < 65536))


def _of_words(words: list[str]) -> list[int]:
    if not any(word.endswith("sshd") for word in words):
        return []
    found = [int(after) for before, after in pairwise(words) if before == "-p" and after.isdecimal()]
    for word in words:
        match = _JOINED.fullmatch(word)
        if match:
            found.append(int(match[1] or match[2]))
    return found
