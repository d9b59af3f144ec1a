"""A host's own account of itself, as values, and the part of it that placing ranks needs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringleader.job import Host
from ringleader.rank_placement import HostFacts


@dataclass(frozen=True, kw_only=True)
class HostReport:
    """Everything the probe learned about one host."""

    host: Host
    hostname: str
    """What the host calls itself."""
    identity: str
    """See ``HostFacts.identity``."""
    is_local: bool
    """True where it is the machine that launches, under whatever name."""
    python: str
    """Path of the interpreter that answered: the one that can run the rank agent there."""
    python_version: str
    """For example ``3.11.7``."""
    agent: str
    """Path of ``ranks/agent.py`` there; empty where Ringleader is not installed (or was not asked about)."""
    ringleader_version: str
    ringleader_checksum: str
    """One checksum of everything beside the agent: two builds of one version differ in it."""
    mpirun: str
    """Path of the MPI launcher there; empty where there is none (or it was not asked about)."""
    mpi_version: str
    cores: tuple[tuple[int, ...], ...]
    """Usable hardware threads by core, NUMA node by NUMA node; each core's first thread first."""
    cpu_limit: float | None
    """CPUs granted by the control group's quota; ``None``: no quota."""
    gpus: tuple[str, ...]
    """See ``HostFacts.gpus``."""
    interfaces: Mapping[str, tuple[str, ...]]
    """Addresses by interface name."""
    addresses: tuple[str, ...]
    """See ``HostFacts.addresses``."""
    reached_from: str
    """Address of ours that the host saw (a jump host's where one lies between); empty without ssh."""
    names: Mapping[str, tuple[str, ...]]
    """Addresses of the job's hosts by name, as it resolves them; empty where it does not."""
    script: str | None
    """SHA-256 of the script there, empty where it is missing; ``None``: not asked about."""
    program: str | None
    """Where the command's program is there, empty where it is missing; ``None``: not asked about."""
    workdir: bool
    """Whether the working directory exists there."""
    shm: tuple[int, int]
    """Bytes of /dev/shm, whole and free; zeros where there is none."""
    memlock: int
    """Bytes a process may lock in memory; -1: unlimited."""
    processes: int = -1
    """Processes that the user may have there; -1: unknown."""
    port_taken: str = ""
    """See ``HostFacts.port_taken``."""
    unstartable: str = ""
    """Why the program there would not start although it is there; empty: it would."""
    unreadable: str = ""
    """Why the script that it is given cannot be read there; empty: it can, or there is none."""

    @property
    def unresolved(self) -> tuple[str, ...]:
        """Names of hosts of the job that do not resolve there."""
        return tuple(name for name, found in self.names.items() if not found)

    @property
    def looped(self) -> tuple[str, ...]:
        """Names that mean itself there: they resolve to loopback addresses only."""
        return tuple(name for name, found in self.names.items() if found and all(map(_is_loopback, found)))


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def report_of(host: Host, answer: Mapping[str, Any], *, local_identity: str) -> HostReport:
    """Read the answer of ``ranks/host_facts_script.py``. KeyError where it lacks what every one has."""
    ours, mpi = answer.get("ringleader", {}), answer.get("mpi", {})
    return HostReport(
        host=host,
        hostname=answer["hostname"],
        identity=answer["identity"],
        is_local=answer["identity"] == local_identity,
        python=answer["python"][0],
        python_version=answer["python"][1],
        agent=ours.get("agent", ""),
        ringleader_version=ours.get("version", ""),
        ringleader_checksum=ours.get("checksum", ""),
        mpirun=mpi.get("mpirun", ""),
        mpi_version=mpi.get("version", ""),
        cores=tuple(tuple(core) for core in answer["cores"]),
        cpu_limit=answer["cpu_limit"],
        gpus=tuple(answer["gpus"]),
        interfaces={name: tuple(found) for name, found in answer["interfaces"].items()},
        addresses=tuple(answer["addresses"]),
        reached_from=answer["reached_from"],
        names={name: tuple(found) for name, found in answer["names"].items()},
        script=answer.get("script"),
        program=answer.get("program"),
        unstartable=answer.get("unstartable", ""),
        unreadable=answer.get("unreadable", ""),
        workdir=answer["workdir"],
        shm=(answer["limits"]["shm"][0], answer["limits"]["shm"][1]),
        memlock=answer["limits"]["memlock"],
        processes=answer["limits"].get("processes", -1),
        port_taken=answer.get("port_taken", ""),
    )


def cores_granted(
    cores: tuple[tuple[int, ...], ...], limit: float | None
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Return the CPU that stands for each core we may use, and the CPUs a rank given it is bound to.

    A rank is bound to all hardware threads of its cores. Under a quota smaller than the machine only so
    many cores count, and nobody is bound: other containers live on the same cores, and each of them
    would pick the first.
    """
    granted = len(cores) if limit is None else max(1, int(limit))
    if granted >= len(cores):
        return tuple(core[0] for core in cores), cores
    everything = tuple(sorted(cpu for core in cores for cpu in core))
    return tuple(core[0] for core in cores[:granted]), (everything,) * granted


def facts_of(report: HostReport) -> HostFacts:
    """Return what placing ranks needs."""
    cpus, cpusets = cores_granted(report.cores, report.cpu_limit)
    return HostFacts(
        host=report.host,
        hostname=report.hostname,
        identity=report.identity,
        is_local=report.is_local,
        cpus=cpus,
        cpusets=cpusets,
        gpus=report.gpus,
        addresses=report.addresses,
        python=report.python,
        agent=report.agent,
        processes=report.processes,
        port_taken=report.port_taken,
    )
