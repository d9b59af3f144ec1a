"""Which wires a job must use and did use: ``--require`` at the start and at the end, and the evidence. Pure.

What agents and ranks reported of a job's bytes is put together host by host and judged in
``fabric/transport_proof``. Ranks write their reports themselves, so nothing in them is taken for granted. The
variables that make libraries use a wire are in ``transport_settings``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Protocol

from ringleader.dataclass_json import from_document
from ringleader.errors import Fault
from ringleader.fabric import facts as fabric
from ringleader.fabric.byte_size import MIB, byte_size
from ringleader.fabric.transport_proof.evidence import (
    CounterSnapshot,
    EngineTraffic,
    Exchanged,
    HostEvidence,
    LibraryTraffic,
    LogLines,
    MpiTransport,
    TcpConnections,
)
from ringleader.fabric.transport_proof.judged_transport import judged_transport
from ringleader.fabric.transport_proof.proof import TransportProof
from ringleader.fabric.transport_proof.requirement import (
    judge_requirement,
    known_at_start,
    parse_requirement,
)
from ringleader.launch.host_probe.host_answer import HostReport
from ringleader.launch.outcome import Exit
from ringleader.plan.job import Family, Mpi
from ringleader.plan.rank_placement import HostFacts, Plan

REFUSED = 3
"""Exit code of a job that went well, but not by the wire that was required."""
LOOPBACK_6 = "1".zfill(32)
MOST_TOLD = 4
"""Hosts whose failure is reported; of a hundred hosts the others fail alike."""
NOTHING_TOLD = (
    "no agent reported what its host moved: the job has one rank, or no agent ran to completion"
    "\n    give the job several ranks, or leave --require out"
)


def faults_at_start(words: Sequence[str], plan: Plan) -> tuple[Fault, ...]:
    """Return why the plan cannot meet the requirement; an empty requirement is always met."""
    if not words:
        return ()
    hosts = {host.host.name: known_facts(host) or fabric_facts(host) for host in plan.hosts}
    ranks = {host.host.name: count for host, count in zip(plan.hosts, plan.counts(), strict=True)}
    return known_at_start(parse_requirement(words), hosts, ranks)


def faults_of_host(words: Sequence[str], host: HostFacts, slots: int) -> tuple[Fault, ...]:
    """Return why a host with ``slots`` ranks cannot meet the requirement, whatever other hosts there are."""
    name, others = host.host.name, {"others": 2}
    facts = known_facts(host) or fabric_facts(host)
    return known_at_start(parse_requirement(words), {name: facts}, others | {name: slots})


def judged_exit(words: Sequence[str], ended: Exit, proof: TransportProof | None) -> Exit:
    """Return how a job ended, in the light of the requirement: a failure of the job's own comes first."""
    if not words or ended.exit_code != 0:
        return ended
    requirement, found = parse_requirement(words), NOTHING_TOLD
    if proof is not None:
        faults = judge_requirement(requirement, proof)
        told = [f"{one.where}: {one.what}" if one.where != "--require" else one.what for one in faults]
        more = [f"and {len(told) - MOST_TOLD} more hosts"] if len(told) > MOST_TOLD else []
        found = "\n    ".join([*told[:MOST_TOLD], *more])
    if not found:
        return ended
    return replace(ended, exit_code=REFUSED, whose="ringleader", reason=f"--require {requirement}: {found}")


def known_facts(host: HostFacts) -> fabric.HostFacts | None:
    """Return the facts that a host reported of itself; ``None``: no RDMA device, not asked, or too late."""
    facts = host.fabric if isinstance(host, HostReport) else None
    return None if facts is None or facts.late_areas else facts


def fabric_facts(host: HostFacts) -> fabric.HostFacts:
    """Return what the probe learned of a host's RDMA ports and GPUs as facts; of anything else nothing."""
    devices: dict[str, fabric.RdmaDevice] = {}
    for one in host.rdma:
        gids = (fabric.Gid(index=0, address="", kind="RoCE v2", netdev=one.netdev),) if one.netdev else ()
        port = fabric.RdmaPort(
            number=one.port,
            state=one.state,
            physical_state="",
            rate=None,
            link_layer=one.link_layer,
            gids=gids,
        )
        known = devices[one.device].ports if one.device in devices else ()
        devices[one.device] = fabric.RdmaDevice(
            name=one.device, node_type=one.node_type, driver=one.driver, ports=(*known, port)
        )
    files = {
        one.device: fabric.DeviceFile(path=one.file, rdma_device=one.device, error=one.unusable)
        for one in host.rdma
        if one.file
    }
    return fabric.HostFacts(
        hostname=host.hostname,
        clock=fabric.Clock(read_at=0.0),
        process=fabric.Process(uid=0, capabilities=0, bounding_capabilities=0, limits={}),
        software=fabric.Software(python="", executable="", ringleader=""),
        rdma_devices=tuple(devices.values()),
        rdma_files=tuple(files.values()),
        gpus=tuple(
            fabric.Gpu(index=index, pci_address="", name=name) for index, name in enumerate(host.gpus)
        ),
    )


# --- evidence ---------------------------------------------------------------------------------------------


class Told(Protocol):
    """A rank, by what it and its agent told."""

    traffic: list[dict[str, Any]]
    evidence: dict[str, Any] | None


def judged_proof(
    plan: Plan,
    mpi: Mpi,
    variables: Mapping[str, str],
    ranks: Sequence[Told],
    *,
    warn: Callable[[str], None],
) -> TransportProof | None:
    """Judge what carried a job's bytes. Whatever goes wrong in that is a warning: the job ended as it did.

    ``variables``: those that the job's MPI had. ``ranks``: by their numbers in the plan.
    """
    try:
        reports, gathered = [state.traffic for state in ranks], [state.evidence for state in ranks]
        return judged_transport(host_evidence(plan, mpi_transport(mpi, variables), reports, gathered))
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
    told_on = [
        [words for place in plan.on_host(index) if (words := gathered[place.rank]) is not None]
        for index in range(len(plan.hosts))
    ]
    counters = [next((words for words in told if "before" in words), {}) for told in told_on]
    snapshots = [(_snapshot(words.get("before")), _snapshot(words.get("after"))) for words in counters]
    addresses = {
        host.host.name: _addresses(host, known) for host, known in zip(plan.hosts, snapshots, strict=True)
    }
    for index, host in enumerate(plan.hosts):
        places, told = plan.on_host(index), told_on[index]
        before, after = snapshots[index]
        connections, connections_missing = tcp_connections(told, host.host.name, addresses)
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
                connections=connections,
                connections_missing=connections_missing,
                unowned_within=_unowned(told, host.host.name, addresses).get(host.host.name, 0),
                verbs=tuple(dict.fromkeys(str(name) for words in told for name in words.get("verbs", ()))),
                by_memory=tuple(
                    dict.fromkeys(str(name) for words in told for name in words.get("by_memory", ()))
                ),
                nccl=_logs("nccl", [(place.rank, gathered[place.rank]) for place in places]),
                ucx=_logs("ucx", [(place.rank, gathered[place.rank]) for place in places]),
                mpi=mpi,
                shared_with_others=_is_shared(after),
            )
        )
    return tuple(found)


def tcp_connections(
    told: Sequence[Mapping[str, Any]], here: str, addresses: Mapping[str, Mapping[str, str]]
) -> tuple[tuple[TcpConnections, ...] | None, str]:
    """Return what a host's connections with the job's hosts moved, and why some are missing.

    ``told``: by its agents. ``addresses``: host → address → the interface that has it. Connections with
    anybody else (file systems, package registries) do not count.
    """
    reports = [words["connections"] for words in told if isinstance(words.get("connections"), Mapping)]
    missing = "; ".join(dict.fromkeys(filter(None, (str(one.get("missing", "")) for one in reports))))
    sums: dict[tuple[str, str], Exchanged] = {}
    for ours, other, sent, received in (pair for one in reports for pair in one.get("pairs", ())):
        if (peer := _peer(other, here, addresses)) is not None:
            key = peer, addresses[here].get(ours, "")
            sums[key] = sums.get(key, Exchanged()) + Exchanged(sent=int(sent), received=int(received))
    unowned = sum(nbytes for peer, nbytes in _unowned(told, here, addresses).items() if peer != here)
    if unowned > MIB:
        text = f"short connections of unknown users moved {byte_size(unowned)}"
        missing = "; ".join(filter(None, [missing, text]))
    found = tuple(
        TcpConnections(peer=peer, interface=name, moved=both) for (peer, name), both in sums.items()
    )
    return (found if reports and (found or not missing) else None), missing


def _unowned(
    told: Sequence[Mapping[str, Any]], here: str, addresses: Mapping[str, Mapping[str, str]]
) -> dict[str, int]:
    """Return what short connections of unknown users moved to and from each of the job's hosts."""
    found: dict[str, int] = {}
    for words in told:
        report = words.get("connections")
        for _, other, nbytes in report.get("unowned", ()) if isinstance(report, Mapping) else ():
            if (peer := _peer(other, here, addresses)) is not None:
                found[peer] = found.get(peer, 0) + int(nbytes)
    return found


def _peer(other: str, here: str, addresses: Mapping[str, Mapping[str, str]]) -> str | None:
    # Bridges of containers have the same address on many hosts: this host comes first.
    if other in addresses[here] or other.startswith("127.") or other == LOOPBACK_6:
        return here
    return next((name for name, known in addresses.items() if other in known), None)


def _addresses(host: HostFacts, snapshots: Iterable[CounterSnapshot | None]) -> dict[str, str]:
    """Return a host's addresses, as its agent writes them, each with its interface; empty: unknown."""
    found = dict.fromkeys(host.addresses, "")  # also where its agent is gone: those of IPv4
    for one in snapshots:
        for name, device in one.net_devices.items() if one is not None else ():
            found |= dict.fromkeys(device.addresses, name)
    return found


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
        return f"the agent of rank {first} reported nothing: it or its host was terminated"
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
