"""What agents and ranks told of a job's bytes, put together host by host. Pure.

Ranks write their reports themselves, so nothing in them is taken for granted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ringleader.fabric.facts import from_document
from ringleader.fabric.transport_proof.evidence import (
    CounterSnapshot,
    EngineTraffic,
    Exchanged,
    HostEvidence,
    LibraryTraffic,
    LogLines,
    MpiTransport,
)
from ringleader.fabric.transport_proof.judged_transport import judged_transport
from ringleader.plan.job import Family, Mpi
from ringleader.plan.rank_placement import Plan

if TYPE_CHECKING:
    from ringleader.fabric.transport_proof.proof import TransportProof
    from ringleader.launch.supervision.rank_state import RankState

Value = TypeVar("Value")


def judged_proof(
    plan: Plan,
    mpi: Mpi,
    variables: Mapping[str, str],
    ranks: Sequence[RankState],
    *,
    warn: Callable[[str], None],
) -> TransportProof | None:
    """Judge what carried a job's bytes. Whatever goes wrong in that is a warning: the job ended as it did.

    ``variables``: those that the job's MPI had. ``ranks``: by their numbers in the plan.
    """
    try:
        evidence = host_evidence(
            plan,
            mpi_transport(mpi, variables),
            [state.traffic for state in ranks],
            [state.evidence for state in ranks],
        )
        return judged_transport(evidence)
    except Exception as error:
        warn(f"what carried the job's bytes could not be judged: {type(error).__name__}: {error}")
        return None


def host_evidence(
    plan: Plan,
    mpi: MpiTransport,
    reports: Sequence[Sequence[Mapping[str, Any]]],
    gathered: Sequence[Mapping[str, Any] | None],
) -> tuple[HostEvidence, ...]:
    """Return the evidence of each host of the plan. ``mpi``: see ``mpi_transport``.

    ``reports``: by rank, its engine's reports of its bytes. ``gathered``: by rank, what its agent sent.
    """
    found = []
    host_of = {place.rank: plan.hosts[place.host_index].host.name for place in plan.ranks}
    for index, host in enumerate(plan.hosts):
        places = plan.on_host(index)
        told = [words for place in places if (words := gathered[place.rank]) is not None]
        counters = next((words for words in told if "before" in words), {})
        before, after = _snapshot(counters.get("before")), _snapshot(counters.get("after"))
        gpus = {place.gpu for place in places if place.gpu}
        found.append(
            HostEvidence(
                host=host.host.name,
                ranks=tuple(place.rank for place in places),
                gpus=len(gpus),
                before=before,
                after=after,
                missing=_missing(places[0].rank, gathered),
                traffic=engine_traffic([reports[place.rank] for place in places], host_of),
                nccl=_logs("nccl", [(place.rank, gathered[place.rank]) for place in places]),
                ucx=_logs("ucx", [(place.rank, gathered[place.rank]) for place in places]),
                mpi=mpi,
                shared_with_others=_is_shared(after),
            )
        )
    return tuple(found)


def mpi_transport(mpi: Mpi, variables: Mapping[str, str]) -> MpiTransport:
    """Return what is known of how an MPI moves messages: what ``variables`` of its ranks make it use."""
    found = MpiTransport(family=mpi.name.rpartition(" ")[0], version=mpi.version)
    provider = _named(variables.get("I_MPI_OFI_PROVIDER") or variables.get("FI_PROVIDER", ""))
    if mpi.family in (Family.OPENMPI4, Family.OPENMPI5):
        pml, btls = _named(variables.get("OMPI_MCA_pml", "")), _named(variables.get("OMPI_MCA_btl", ""))
        return replace(found, pml=pml[0] if len(pml) == 1 else "", btls=btls)
    netmod = variables.get("MPIR_CVAR_CH4_NETMOD", "")
    return replace(
        found,
        netmod=f"ch4:{netmod}" if netmod else "",
        provider=provider[0] if len(provider) == 1 else "",
    )


def _named(value: str) -> tuple[str, ...]:
    """Return the components of a list, none where it only names those that are left out."""
    return () if value.startswith("^") else tuple(part for part in value.split(",") if part)


def engine_traffic(
    reports: Sequence[Sequence[Mapping[str, Any]]], host_of: Mapping[int, str]
) -> EngineTraffic | None:
    """Return the sums of what ranks reported, one sequence for each rank; ``None``: none of them did."""
    if not any(reports):
        return None
    shared, libraries, peers = 0, dict[str, LibraryTraffic](), dict[str, Exchanged]()
    for report in (one for of_rank in reports for one in of_rank):
        shared += _count(report, "shared")
        told = report.get("libraries")
        for name, counted in told.items() if isinstance(told, Mapping) else ():
            if isinstance(counted, Mapping):
                libraries[name] = _added(libraries.get(name, LibraryTraffic()), counted)
        for host, exchanged in _peers(report.get("peers"), host_of):
            peers[host] = peers.get(host, Exchanged()) + exchanged
    return EngineTraffic(
        shared_memory=shared,
        libraries=libraries,
        peers=peers,
        ranks_counted=sum(bool(of_rank) for of_rank in reports),
    )


def _peers(told: Any, host_of: Mapping[int, str]) -> Iterator[tuple[str, Exchanged]]:
    for number, both in told.items() if isinstance(told, Mapping) else ():
        host = host_of.get(int(number)) if str(number).isdecimal() else None
        if host is not None and isinstance(both, list) and len(both) == 2:
            sent, received = (_count({"bytes": value}, "bytes") for value in both)
            yield host, Exchanged(sent=sent, received=received)


def _added(total: LibraryTraffic, counted: Mapping[str, Any]) -> LibraryTraffic:
    return LibraryTraffic(
        **{one.name: getattr(total, one.name) + _count(counted, one.name) for one in fields(LibraryTraffic)}
    )


def _count(words: Mapping[str, Any], name: str) -> int:
    value = words.get(name, 0)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _snapshot(document: Any) -> CounterSnapshot | None:
    if not isinstance(document, Mapping):
        return None
    try:
        return from_document(CounterSnapshot, document)
    except (ValueError, TypeError):
        return None


def _missing(first: int, gathered: Sequence[Mapping[str, Any] | None]) -> str:
    """Say why a host's counters may not be here: they are its first rank's agent's to read."""
    words = gathered[first]
    if words is None:
        return f"the agent of rank {first} told nothing: it, or its host, was ended"
    return str(words.get("missing", ""))


def _is_shared(after: CounterSnapshot | None) -> bool:
    """Say whether others may move these counters: a namespace without any hardware is a Pod's or a lab's."""
    if after is None or after.rdma_ports:
        return True
    return any(not one.is_virtual for one in after.net_devices.values())


def _logs(library: str, told: Sequence[tuple[int, Mapping[str, Any] | None]]) -> tuple[LogLines, ...]:
    found = []
    for rank, words in told:
        log = ((words or {}).get("logs") or {}).get(library)
        if log is not None:
            lines = tuple(str(line) for line in log["lines"])
            found.append(LogLines(rank=rank, lines=lines, left_out=int(log["left_out"])))
    return tuple(found)
