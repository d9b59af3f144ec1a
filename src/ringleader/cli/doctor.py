"""``ringleader doctor``: what this host has for jobs; with ``--image`` what an image is worth."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ringleader.cli.json_output import JSON_OPTIONS, JsonOptions, show
from ringleader.cli.options.option_checks import FiniteRange, unwritable, write_text
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import Command, Option
from ringleader.errors import Fault, RequestError

if TYPE_CHECKING:
    from ringleader.finding import Finding

COLUMN = 100
"""Widest text in a column of the table."""


HELP = """Say what this host has for jobs; with --image try it, and say what to fix.

Alone it tells what a job would find here: addresses, Python, MPI, frameworks, cores, GPUs, ssh, /dev/shm,
limits. Nothing is started or loaded. --image loads the libraries, prints their versions, starts sshd on
a free loopback port with throw-away keys, and two ranks from there. It runs inside an image, as any
user, and on any machine. The exit code is 3 where a check failed.
"""


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """The options, as they were written."""

    image: bool = False
    sbom: str | None = None
    timeout: float = 300
    json: JsonOptions = field(default_factory=JsonOptions)


def doctor(options: DoctorOptions) -> int:
    """Look at this host, or try the image; return the exit code."""
    sbom = options.sbom
    if sbom == "-" and options.image:
        raise RequestError(Fault(where="--sbom -", what="with --image both would be standard output"))
    if sbom:
        from ringleader.doctor.installed_packages import sbom_text

        faults = unwritable("--sbom", sbom)
        if faults:
            raise RequestError(faults)
        write_text(sbom, sbom_text())
        if not options.image:
            return 0
    from ringleader.doctor import document_of
    from ringleader.doctor.host_findings import findings
    from ringleader.finding import has_fault

    found, about = inspect_image(options.timeout) if options.image else (findings(os.environ), {})
    checks = [document_of(one) for one in found]
    values = {**about, "ok": not has_fault(found), "checks": checks}
    show(options.json, values, lambda: f"{table_of(checks)}\n")
    return 3 if has_fault(found) else 0


command = Command(
    "doctor",
    options=DoctorOptions,
    run=doctor,
    params=[
        Option(
            ["--image"],
            is_flag=True,
            help="Check the image that this container was made of, or this machine.",
        ),
        Option(
            ["--sbom"],
            metavar="FILE",
            help="Write the list of installed packages, CycloneDX JSON; - prints it. Alone it starts "
            "nothing.",
        ),
        Option(
            ["--timeout"],
            type=FiniteRange(min=0, min_open=True),
            default=300,
            show_default=True,
            metavar="SECONDS",
            help="What all checks may take together.",
        ),
        *JSON_OPTIONS,
    ],
    help=HELP,
)


def inspect_image(seconds: float) -> tuple[tuple[Finding, ...], dict[str, Any]]:
    """Run every check; return what came of it, and which image it is."""
    from ringleader.doctor.image_inspection import collect
    from ringleader.doctor.software_findings import judge

    line = ProgressLine(prefix="")
    facts = collect(environ=os.environ, seconds=seconds, progress=line.show)
    line.clear()
    return tuple(judge(facts)), {"image": facts.manifest.get("name") if facts.manifest else None}


def table_of(checks: Sequence[Mapping[str, str]]) -> str:
    """Return the findings as a table for people."""
    from tabulate import tabulate

    rows = []
    for one in checks:
        words = f"{one['what']}\n→ {one['do']}" if one.get("do") else one["what"]
        rows.append((one["id"], one["level"], words))
    return str(tabulate(rows, headers=("check", "", "what"), maxcolwidths=[None, None, COLUMN]))
