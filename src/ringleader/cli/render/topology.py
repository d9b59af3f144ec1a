"""``ringleader render topology`` and ``env``: how GPUs and NICs are connected; variables that fit a host."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringleader.agents.hardware import output
from ringleader.cli.doctor.stored_facts import read_facts
from ringleader.cli.options.option_checks import read_input, unwritable, write_text
from ringleader.cli.output import dumped
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RefusedError, RequestError, refuse
from ringleader.fabric.readers import read_host
from ringleader.fabric.settings.recommended_settings import recommend
from ringleader.fabric.topology.drawing import machine_drawing
from ringleader.fabric.topology.matrix import differences, parse_nvidia_smi, topology_matrix, with_nvlinks
from ringleader.fabric.unread_areas import UnreadError, known
from ringleader.option_fields import option
from ringleader.render import transport_settings
from ringleader.render.host_topology import topology_text, topology_values

if TYPE_CHECKING:
    from ringleader.fabric.facts import HostFacts
    from ringleader.fabric.topology.matrix import TopologyMatrix

OPTION_NAME = "--facts-from"
READ_SECONDS = 60.0
"""What reading this host may take; a busy one may need more than the doctor's few, and is not guessed at."""


def facts_from_option() -> Any:
    """Return the field of ``--facts-from FILE``."""
    return option(
        "A host that ringleader doctor --facts wrote; - reads standard input. [default: this host]",
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
        "Also what fits this rank of the host alone: the NIC at its GPU.", metavar="N"
    )
    format: str = option(
        "Lines for eval, a file for --env-file, the env of a container, or all as JSON.",
        default="shell",
        metavar="|".join(transport_settings.FORMATS),
        choices=tuple(transport_settings.FORMATS),
    )


@Command.of("env", EnvOptions)
def env_command(options: EnvOptions) -> None:
    """Print the variables for NCCL, UCX, libfabric, MPI and Gloo that fit a host, each with its reason.

    \b
      eval "$(ringleader render env)"
      ringleader render env --facts-from node7.json --format docker-env > node7.env

    A library that decides better by itself is left alone, and so is what you have set. ringleader run does
    the same on every host of a job; this is for what others start.
    """
    # The facts of another host have that host's environment, and ours says nothing about it.
    user = os.environ if options.facts_from is None else {}
    with host_facts(options.facts_from) as facts:
        sys.stdout.write(
            transport_settings.FORMATS[options.format](
                facts.hostname, recommend(facts, local_rank=options.local_rank, user=user)
            )
        )


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


@Command.of("topology", TopologyOptions)
def command(options: TopologyOptions) -> None:
    """Print how far the GPUs and NICs of a host are apart, and which NIC each GPU should use.

    \b
      ringleader render topology
      ringleader render topology --facts-from node7.json --format svg -o node7.svg

    The distances are those of nvidia-smi topo -m, found without it: from PCI paths and NUMA nodes.
    """
    faults = [*options.faults, *unwritable("--output", options.output)]
    refuse(faults)
    with host_facts(options.facts_from) as facts:
        matrix, otherwise = matrix_of(facts, is_here=options.facts_from is None)
        if options.format == "svg":
            text = machine_drawing(facts)
        elif options.format == "json":
            text = dumped(topology_values(facts, matrix, otherwise))
        else:
            text = topology_text(facts, matrix, otherwise)
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
