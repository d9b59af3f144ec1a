"""``ringleader render topology``: how far a host's GPUs and NICs are apart: table, JSON or drawing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringleader.cli.options.option_checks import Faults, unwritable, write_text
from ringleader.cli.render.facts_option import FACTS_FROM, host_facts
from ringleader.cli.typed_command import Command, Option
from ringleader.errors import RequestError

if TYPE_CHECKING:
    from ringleader.fabric.facts import HostFacts

HELP = """Print how far the GPUs and NICs of a host are apart, and which NIC each GPU should use.

\b
  ringleader render topology
  ringleader render topology --facts-from node7.json --format svg -o node7.svg

The distances are those of nvidia-smi topo -m, found without it: from PCI paths and NUMA nodes.
"""
FORMATS = ("text", "json", "svg")


@dataclass(frozen=True, kw_only=True)
class TopologyOptions:
    """The options, as they were written."""

    facts_from: str | None = None
    format: str = "text"
    output: str = "-"


TOPOLOGY_OPTIONS = (
    FACTS_FROM,
    Option(
        ["--format"],
        default="text",
        show_default=True,
        metavar="text|json|svg",
        help="A table, values, or a drawing.",
    ),
    Option(["-o", "--output", "output"], default="-", metavar="FILE", help="Write it to a file."),
)


def topology(options: TopologyOptions) -> None:
    """Print or write the topology."""
    faults = Faults(found=unwritable("--output", options.output))
    if options.format not in FORMATS:
        faults.add("--format", f"{options.format!r} is unknown", f"use one of: {', '.join(FORMATS)}")
    if faults.found:
        raise RequestError(faults.found)
    facts = host_facts(options.facts_from)
    if options.format == "svg":
        from ringleader.fabric.topology.drawing import machine_drawing

        write_text(options.output, machine_drawing(facts))
    elif options.format == "json":
        from ringleader.cli.json_output import dumped

        write_text(options.output, dumped(topology_values(facts)))
    else:
        write_text(options.output, topology_text(facts))


def topology_text(facts: HostFacts) -> str:
    """Return the table, and the NIC of each local rank with the verdict on GPUDirect RDMA."""
    from ringleader.fabric.topology.matrix import matrix_text, topology_matrix
    from ringleader.report.number_format import plural

    if not facts.gpus and not facts.rdma_devices:
        return f"{facts.hostname} has no GPU and no RDMA device\n"
    counts = [plural(len(facts.gpus), "GPU"), plural(len(facts.rdma_devices), "RDMA device")]
    lines = [f"{facts.hostname}: {', '.join(counts)}", "", matrix_text(topology_matrix(facts))]
    values = topology_values(facts)
    if values["nics"]:
        lines.append("NIC of each local rank:\n")
    for one in values["nics"]:
        whose = f"{one['local_rank']} ({one['gpu']})" if one["gpu"] else f"{one['local_rank']}"
        direct = f"; GPUDirect RDMA: {one['gpudirect']}, {one['reason']}" if one["gpudirect"] else ""
        again = ", shared" if one["shared"] else ""
        distance = f" {one['distance']}" if one["distance"] else ""
        lines.append(f"  {whose}: {one['nic']}{distance}{again}{direct}")
    for one in values["left_out"]:
        lines.append(f"  not used: {one['port']}: {one['reason']}")
    return "\n".join(lines).rstrip() + "\n"


def topology_values(facts: HostFacts) -> dict[str, Any]:
    """Return the same as plain values for JSON."""
    from ringleader.fabric.port_selection import select_ports
    from ringleader.fabric.topology.gpudirect import p2p_verdicts, rdma_verdicts
    from ringleader.fabric.topology.matrix import matrix_values, topology_matrix
    from ringleader.fabric.topology.nic_assignment import assign_nics

    ports = select_ports(facts)
    verdicts = {(one.one, one.other): one for one in rdma_verdicts(facts)}
    nics = []
    for one in assign_nics(facts, ports):
        gpu = f"GPU{one.gpu.index}" if one.gpu else ""
        verdict = verdicts.get((gpu, one.nic.device.name))
        nics.append(
            {
                "local_rank": one.local_rank,
                "gpu": gpu,
                "nic": one.nic.name,
                "distance": one.distance.name if one.distance else "",
                "shared": one.shared,
                "gpudirect": str(verdict.verdict) if verdict else "",
                "reason": verdict.reason if verdict else "",
            }
        )
    pairs = [*verdicts.values(), *p2p_verdicts(facts)]
    return {
        "host": facts.hostname,
        **matrix_values(topology_matrix(facts)),
        "nics": nics,
        "left_out": [{"port": one.name, "reason": one.reason} for one in ports.left_out],
        "gpudirect": [
            {
                "one": one.one,
                "other": one.other,
                "verdict": str(one.verdict),
                "reason": one.reason,
                "distance": one.distance.name if one.distance else "",
            }
            for one in pairs
        ],
    }


command = Command("topology", options=TopologyOptions, run=topology, params=list(TOPOLOGY_OPTIONS), help=HELP)
