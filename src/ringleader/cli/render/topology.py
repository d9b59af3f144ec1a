"""``ringleader render topology``: how far a host's GPUs and NICs are apart: table, JSON or drawing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringleader.cli.options.option_checks import unwritable, write_text
from ringleader.cli.render.facts_option import facts_from_option, host_facts
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RequestError
from ringleader.option_fields import option

if TYPE_CHECKING:
    from ringleader.fabric.facts import HostFacts
    from ringleader.fabric.topology.matrix import TopologyMatrix

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

    facts_from: str | None = facts_from_option()
    format: str = option(
        "A table, values, or a drawing.", default="text", metavar="text|json|svg", choices=FORMATS
    )
    output: str = option(
        "Write it to a file.", "-o", "--output", default="-", metavar="FILE", show_default=False
    )
    faults: tuple[Fault, ...] = ()


def topology(options: TopologyOptions) -> None:
    """Print or write the topology."""
    from ringleader.render.host_topology import topology_text, topology_values

    faults = [*options.faults, *unwritable("--output", options.output)]
    if faults:
        raise RequestError(faults)
    with host_facts(options.facts_from) as facts:
        matrix, otherwise = matrix_of(facts, is_here=options.facts_from is None)
        if options.format == "svg":
            from ringleader.fabric.topology.drawing import machine_drawing

            text = machine_drawing(facts)
        elif options.format == "json":
            from ringleader.cli.json_output import dumped

            text = dumped(topology_values(facts, matrix, otherwise))
        else:
            text = topology_text(facts, matrix, otherwise)
    write_text(options.output, text)


def matrix_of(facts: HostFacts, *, is_here: bool) -> tuple[TopologyMatrix, tuple[str, ...]]:
    """Return the matrix, and where nvidia-smi says something else; it is asked about this host alone."""
    from ringleader.fabric.topology.matrix import topology_matrix
    from ringleader.fabric.topology.nvidia_smi_matrix import differences, parse_nvidia_smi, with_nvlinks
    from ringleader.ranks.hardware import output

    ours = topology_matrix(facts)
    if not is_here or not facts.gpus:
        return ours, ()
    try:
        theirs = parse_nvidia_smi(output(["nvidia-smi", "topo", "-m"]))
    except ValueError:
        return ours, ()
    return with_nvlinks(ours, theirs), differences(ours, theirs)


command = Command("topology", options=TopologyOptions, run=topology, help=HELP)
