"""Topology of one host as text and as values: distances, NICs of local ranks, GPUDirect. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringleader.fabric.facts import HostFacts
from ringleader.fabric.port_selection import select_ports
from ringleader.fabric.topology.gpudirect import DirectAccess, p2p_verdicts, rdma_verdicts
from ringleader.fabric.topology.matrix import TopologyMatrix, matrix_text, matrix_values
from ringleader.fabric.topology.nic_assignment import NicAssignment, assign_nics


def topology_text(facts: HostFacts, matrix: TopologyMatrix, otherwise: Sequence[str] = ()) -> str:
    """Return the table, and the NIC of each local rank with the verdict on GPUDirect RDMA.

    ``otherwise``: where nvidia-smi says something else than ``matrix``.
    """
    if not matrix.devices:
        return f"{facts.hostname} has no GPU and no RDMA device\n"
    counts = [_count(len(facts.gpus), "GPU"), _count(len(facts.rdma_devices), "RDMA device")]
    lines = [f"{facts.hostname}: {', '.join(counts)}", "", matrix_text(matrix)]
    lines += [f"nvidia-smi says otherwise: {one}" for one in otherwise]
    ports = select_ports(facts)
    verdicts = {(one.one, one.other): one for one in rdma_verdicts(facts)}
    assigned = assign_nics(facts, ports)
    if assigned:
        lines.append("NIC of each local rank:\n")
    lines += [f"  {_nic_line(one, verdicts.get(_pair(one)))}" for one in assigned]
    lines += [f"  not used: {one.name}: {one.reason}" for one in ports.left_out]
    return "\n".join(lines).rstrip() + "\n"


def topology_values(
    facts: HostFacts, matrix: TopologyMatrix, otherwise: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the same as plain values for JSON, with GPUDirect for every pair."""
    ports = select_ports(facts)
    verdicts = {(one.one, one.other): one for one in rdma_verdicts(facts)}
    return {
        "host": facts.hostname,
        **matrix_values(matrix),
        "nvidia_smi_says_otherwise": list(otherwise),
        "nics": [_nic_values(one, verdicts.get(_pair(one))) for one in assign_nics(facts, ports)],
        "left_out": [{"port": one.name, "reason": one.reason} for one in ports.left_out],
        "gpudirect": [
            {
                "one": one.one,
                "other": one.other,
                "verdict": str(one.verdict),
                "reason": one.reason,
                "distance": one.distance.name if one.distance else "",
            }
            for one in (*verdicts.values(), *p2p_verdicts(facts))
        ],
    }


def _pair(one: NicAssignment) -> tuple[str, str]:
    return (f"GPU{one.gpu.index}" if one.gpu else "", one.nic.device.name)


def _nic_values(one: NicAssignment, verdict: DirectAccess | None) -> dict[str, Any]:
    return {
        "local_rank": one.local_rank,
        "gpu": _pair(one)[0],
        "nic": one.nic.name,
        "distance": one.distance.name if one.distance else "",
        "shared": one.shared,
        "gpudirect": str(verdict.verdict) if verdict else "",
        "reason": verdict.reason if verdict else "",
    }


def _nic_line(one: NicAssignment, verdict: DirectAccess | None) -> str:
    words = [f"{one.local_rank} ({_pair(one)[0]}):" if one.gpu else f"{one.local_rank}:", one.nic.name]
    if one.distance:
        words.append(one.distance.name)
    line = " ".join(words) + (", shared" if one.shared else "")
    return f"{line}; GPUDirect RDMA: {verdict.verdict}, {verdict.reason}" if verdict else line


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
