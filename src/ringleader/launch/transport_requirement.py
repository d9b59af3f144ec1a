"""What ``--require`` demands of the wire, held against a plan before it starts and against its end. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ringleader.errors import Fault
from ringleader.fabric import facts as fabric
from ringleader.fabric.transport_proof.proof import TransportProof
from ringleader.fabric.transport_proof.requirement import (
    Requirement,
    judge_requirement,
    known_at_start,
    parse_requirement,
)
from ringleader.launch.host_probe.host_query import HostReport
from ringleader.launch.outcome import Exit
from ringleader.plan.rank_placement import HostFacts, Plan

REFUSED = 3
"""Exit code of a job that went well, but not by the wire that was required."""
MOST_TOLD = 4
"""Hosts whose failure is told; of a hundred hosts the others fail alike."""
NOTHING_TOLD = (
    "no rank told what it exchanged: none uses Ringleader's engine, or none came to its end"
    "\n    what a script sends by torch.distributed or MPI itself is not counted: let Ringleader's optimizer"
    " exchange the gradients, or leave --require out"
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
    requirement = parse_requirement(words)
    found = _unmet(requirement, proof)
    if not found:
        return ended
    return replace(ended, exit_code=REFUSED, whose="ringleader", reason=f"--require {requirement}: {found}")


def _unmet(requirement: Requirement, proof: TransportProof | None) -> str:
    if proof is None:
        return NOTHING_TOLD
    faults = judge_requirement(requirement, proof)
    told = [f"{fault.where}: {fault.what}" if fault.where != "--require" else fault.what for fault in faults]
    more = [f"and {len(told) - MOST_TOLD} more hosts"] if len(told) > MOST_TOLD else []
    return "\n    ".join([*told[:MOST_TOLD], *more])


def known_facts(host: HostFacts) -> fabric.HostFacts | None:
    """Return the facts that a host told of itself; ``None``: no RDMA device, not asked, or too late."""
    facts = host.fabric if isinstance(host, HostReport) else None
    return None if facts is None or facts.late_areas else facts


def fabric_facts(host: HostFacts) -> fabric.HostFacts:
    """Return what the probe learned of a host's RDMA ports and GPUs as facts; of anything else nothing."""
    devices: dict[str, list[fabric.RdmaPort]] = {}
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
        devices.setdefault(one.device, []).append(port)
    about = {one.device: one for one in host.rdma}
    return fabric.HostFacts(
        hostname=host.hostname,
        clock=fabric.Clock(read_at=0.0),
        process=fabric.Process(uid=0, capabilities=0, bounding_capabilities=0, limits={}),
        software=fabric.Software(python="", executable="", ringleader=""),
        rdma_devices=tuple(
            fabric.RdmaDevice(
                name=name,
                node_type=about[name].node_type,
                driver=about[name].driver,
                ports=tuple(ports),
            )
            for name, ports in devices.items()
        ),
        rdma_files=tuple(
            fabric.DeviceFile(path=one.file, rdma_device=name, error=one.unusable)
            for name, one in about.items()
            if one.file
        ),
        gpus=tuple(
            fabric.Gpu(index=index, pci_address="", name=name) for index, name in enumerate(host.gpus)
        ),
    )
