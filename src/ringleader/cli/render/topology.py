"""``ringleader render topology`` and ``env``: how GPUs and NICs are connected; variables that fit a host."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ringleader.agents.hardware import output
from ringleader.cli.doctor.stored_facts import read_facts
from ringleader.cli.options.option_checks import read_input, unwritable, write_text
from ringleader.cli.output import JsonOptions, dumped, result_to, show
from ringleader.cli.terminal_progress import shown_while
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RefusedError, RequestError, refuse
from ringleader.fabric.port_selection import select_ports
from ringleader.fabric.readers import read_host
from ringleader.fabric.settings.recommended_settings import recommend
from ringleader.fabric.topology.drawing import machine_drawing
from ringleader.fabric.topology.gpudirect import p2p_verdicts, rdma_verdicts
from ringleader.fabric.topology.matrix import (
    TopologyMatrix,
    differences,
    matrix_text,
    matrix_values,
    parse_nvidia_smi,
    topology_matrix,
    with_nvlinks,
)
from ringleader.fabric.topology.nic_assignment import assign_nics
from ringleader.fabric.unread_areas import UnreadError, known
from ringleader.option_fields import group, option
from ringleader.render import transport_settings

if TYPE_CHECKING:
    from ringleader.fabric.facts import HostFacts

OPTION_NAME = "--facts-from"
READ_SECONDS = 60.0
"""What reading this host may take; a busy one may need more than the doctor's few, and is not guessed at."""


def facts_from_option() -> Any:
    """Return the field of ``--facts-from FILE``."""
    return option(
        "Facts of another host, written by ringleader doctor --facts (`-` for standard input). [default: "
        "this host]",
        OPTION_NAME,
        metavar="FILE",
    )


@contextmanager
def host_facts(path: str | None) -> Iterator[HostFacts]:
    """Give the facts of a file, or of this host. Raises RequestError for a file that has none.

    Inside, wanting a value that was not read in time raises RefusedError: it is not known to be absent.
    """
    try:
        yield known(_facts(path))
    except UnreadError as unread:
        where, hint = path or "this host", "read it again when the host is less busy"
        raise RefusedError(str(unread), where=where, hint=hint) from None


def _facts(path: str | None) -> HostFacts:
    if path is None:
        with shown_while("reading this host"):
            return read_host(environ=os.environ, seconds=READ_SECONDS)
    found = read_facts([path], read_input)
    if len(found) > 1:
        hint = f"it holds {', '.join(list(found)[:5])}; doctor -H HOST --facts writes one"
        raise RequestError(
            f"{path} holds {len(found)} hosts, and one is wanted", where=OPTION_NAME, hint=hint
        )
    return next(iter(found.values()))


@dataclass(frozen=True, kw_only=True)
class EnvOptions:
    """The options, as they were written."""

    facts_from: str | None = facts_from_option()
    local_rank: int | None = option(
        "Also print the variables of this one rank of the host: the NIC at its GPU.", metavar="N"
    )
    format: str = option(
        "Format: lines for eval, a file for --env-file, or the env of a container.",
        default="shell",
        choices=tuple(transport_settings.FORMATS),
        old_choices=("json",),
    )
    json: JsonOptions = group(JsonOptions)


@Command.of("env", EnvOptions)
def env_command(options: EnvOptions) -> None:
    """Print variables for NCCL, UCX, libfabric, MPI and Gloo that fit a host, each with its reason.

    \b
      eval "$(ringleader render env)"
      ringleader render env --facts-from node7.json --format docker-env > node7.env

    No variable is printed where the library's own choice is better or where you have set it. ringleader run
    sets these variables on every host; this command is for programs that are started in other ways.
    """
    # The facts of another host have that host's environment, and ours says nothing about it.
    user = os.environ if options.facts_from is None else {}
    with host_facts(options.facts_from) as facts:
        found = recommend(facts, local_rank=options.local_rank, user=user)
        json = replace(options.json, json=options.json.json or options.format == "json")
        values = transport_settings.settings_values(facts.hostname, found)
        inputs = [] if options.facts_from is None else [options.facts_from]
        show(json, values, lambda: transport_settings.FORMATS[options.format](facts.hostname, found), inputs)


@dataclass(frozen=True, kw_only=True)
class TopologyOptions:
    """The options, as they were written."""

    facts_from: str | None = facts_from_option()
    format: str = option(
        "Print a table, or draw.", default="text", choices=("text", "svg"), old_choices=("json",)
    )
    json: JsonOptions = group(JsonOptions)
    output: str = option(
        "Write it to a file.", "-o", "--output", default="-", metavar="FILE", show_default=False
    )
    faults: tuple[Fault, ...] = ()


@Command.of("topology", TopologyOptions)
def command(options: TopologyOptions) -> None:
    """Print the distances between a host's GPUs and NICs, and the NIC that each GPU should use.

    \b
      ringleader render topology
      ringleader render topology --facts-from node7.json --format svg -o node7.svg

    Distances are those of nvidia-smi topo -m, computed from PCI paths and NUMA nodes.
    """
    faults = [*options.faults, *unwritable("--output", options.output)]
    refuse(faults)
    with host_facts(options.facts_from) as facts:
        matrix, otherwise = matrix_of(facts, is_here=options.facts_from is None)
        values = topology_values(facts, matrix, otherwise)
        if options.json.json or options.format == "json":
            text = dumped(values)
        else:
            text = (
                machine_drawing(facts) if options.format == "svg" else topology_text(facts, matrix, otherwise)
            )
    with result_to(options.json, [] if options.facts_from is None else [options.facts_from]) as result:
        result.write(values)
    write_text(options.output, text)


def matrix_of(facts: HostFacts, *, is_here: bool) -> tuple[TopologyMatrix, tuple[str, ...]]:
    """Return the matrix, and where nvidia-smi says something else; it is asked about this host alone."""
    ours = topology_matrix(facts)
    if not is_here or not facts.gpus:
        return ours, ()
    try:
        theirs = parse_nvidia_smi(output(["nvidia-smi", "topo", "-m"]))
    except ValueError:
        return ours, ()
    return with_nvlinks(ours, theirs), differences(ours, theirs)


def topology_values(
    facts: HostFacts, matrix: TopologyMatrix, otherwise: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the topology of a host as plain values for JSON, with GPUDirect for every pair.

    ``otherwise``: where nvidia-smi says something else than ``matrix``.
    """
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
    return {
        "host": facts.hostname,
        **matrix_values(matrix),
        "nvidia_smi_says_otherwise": list(otherwise),
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
            for one in (*verdicts.values(), *p2p_verdicts(facts))
        ],
    }


def topology_text(facts: HostFacts, matrix: TopologyMatrix, otherwise: Sequence[str] = ()) -> str:
    """Return the same for people: the table, and the NIC of each local rank with the verdict on GPUDirect."""
    if not matrix.devices:
        return f"{facts.hostname} has no GPU and no RDMA device\n"
    values = topology_values(facts, matrix, otherwise)
    counts = [_count(len(facts.gpus), "GPU"), _count(len(facts.rdma_devices), "RDMA device")]
    lines = [f"{facts.hostname}: {', '.join(counts)}", "", matrix_text(matrix)]
    lines += [f"nvidia-smi says otherwise: {one}" for one in otherwise]
    lines += ["NIC of each local rank:\n"] if values["nics"] else []
    for one in values["nics"]:
        rank = f"{one['local_rank']} ({one['gpu']}):" if one["gpu"] else f"{one['local_rank']}:"
        line = " ".join(filter(None, (rank, one["nic"], one["distance"])))
        verdict = f"; GPUDirect RDMA: {one['gpudirect']}, {one['reason']}" if one["gpudirect"] else ""
        lines.append(f"  {line}{', shared' if one['shared'] else ''}{verdict}")
    lines += [f"  not used: {one['port']}: {one['reason']}" for one in values["left_out"]]
    return "\n".join(lines).rstrip() + "\n"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
