"""What is said of hosts, shown as lines or as JSON."""

from __future__ import annotations

import shutil
import sys
from typing import Any

from ringleader.cli.doctor.doctor_options import DoctorOptions
from ringleader.cli.doctor.host_lines import host_lines
from ringleader.cli.doctor.node_table import node_table
from ringleader.cli.doctor.results_document import documents_of
from ringleader.cli.doctor.results_text import WIDTH, results_text
from ringleader.cli.json_output import JsonFile, dumped
from ringleader.doctor.hosts_reading import HostsReading
from ringleader.doctor.judgement import Judgement
from ringleader.fabric.active.pair_matrix import pair_matrix
from ringleader.fabric.facts import document

NARROWEST, WIDEST = 60, 140


def show_judgement(
    options: DoctorOptions, read: HostsReading, judged: Judgement, file: JsonFile | None
) -> int:
    """Show what is said of the hosts that were read; return the exit code."""
    values = judgement_document(judged)
    if file is not None:
        file.write(values)
    sys.stdout.write(dumped(values) if options.json.json else judgement_text(judged, read, options.verbose))
    sys.stdout.flush()
    return 0 if judged.ok else 3


def judgement_text(judged: Judgement, read: HostsReading, verbose: bool, width: int | None = None) -> str:
    """Return the text for people: what the hosts are, then the results."""
    columns = width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH)
    columns = min(max(columns, NARROWEST), WIDEST)
    head = "".join(f"{line}\n" for line in host_lines(read.facts))
    if judged.cluster is not None:
        head += f"\n{node_table(*judged.cluster)}" if head else node_table(*judged.cluster)
    if judged.measured is not None and (matrix := pair_matrix(judged.measured)):
        head += f"\n{matrix}"
    results = results_text(
        judged.results(),
        groups=judged.groups(),
        hosts=judged.hosts,
        verbose=verbose,
        always=judged.answers(),
        width=columns,
    )
    return printable(f"{head}\n{results}" if head else results)


def printable(text: str) -> str:
    """Return a text without letters that steer a terminal: names come from other hosts and files."""
    return "".join(one if one.isprintable() or one == "\n" else "?" for one in text)


def judgement_document(judged: Judgement) -> dict[str, Any]:
    """Return the result for programs. Of several hosts: also each host's own results."""
    names = judged.groups()
    values: dict[str, Any] = {"ok": judged.ok, "checks": documents_of(judged.results(), names)}
    if judged.cluster is not None:
        values["nodes"] = document(judged.cluster[0].nodes)
    if judged.measured is not None:
        values["active"] = document(judged.measured)
    if len(judged.hosts) == 1 and not judged.unread:
        return {"host": judged.hosts[0], **values}
    return {
        **values,
        "hosts": [
            {"host": host, "checks": documents_of(results, names)} for host, results in judged.by_host.items()
        ],
    }
