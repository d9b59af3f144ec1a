"""``ringleader doctor``: what this host has for jobs; with ``--image`` what an image is worth."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence

import click

from ringleader.cli.number_types import FiniteRange
from ringleader.errors import Fault, RequestError

COLUMN = 100
"""Widest text in a column of the table."""


@click.command(name="doctor", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--image", is_flag=True, help="Check the image that this container was made of, or this machine."
)
@click.option(
    "--sbom",
    metavar="FILE",
    help="Write the list of installed packages, CycloneDX JSON; - prints it. Alone it starts nothing.",
)
@click.option(
    "--timeout",
    type=FiniteRange(min=0, min_open=True),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="What all checks may take together.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(image: bool, sbom: str | None, timeout: float, as_json: bool) -> int:
    """Say what this host has for jobs; with --image try it, and say what to fix.

    Alone it tells what a job would find here: addresses, Python, MPI, frameworks, cores, GPUs, ssh, /dev/shm,
    limits. Nothing is started or loaded. --image loads the libraries, prints their versions, starts sshd on
    a free loopback port with throw-away keys, and two ranks from there. It runs inside an image, as any
    user, and on any machine. The exit code is 3 where a check failed.
    """
    if sbom == "-" and image:
        raise RequestError(Fault(where="--sbom -", what="with --image both would be standard output"))
    if sbom:
        from ringleader.cli.image.build import unwritable, write_text
        from ringleader.doctor.installed_packages import sbom_text

        faults = unwritable("--sbom", sbom)
        if faults:
            raise RequestError(faults)
        write_text(sbom, sbom_text())
        if not image:
            return 0
    return check(timeout, as_json=as_json) if image else check_host(as_json=as_json)


def check_host(*, as_json: bool) -> int:
    """Tell what this host has, and return the exit code."""
    from ringleader.doctor.host_findings import findings
    from ringleader.finding import fails

    found = findings(os.environ)
    checks = [one.plain() for one in found]
    if as_json:
        print(json.dumps({"ok": not fails(found), "checks": checks}, indent=2))
    else:
        print(table_of(checks))
    return 3 if fails(found) else 0


def check(timeout: float, *, as_json: bool) -> int:
    """Run every check, print what came of it, and return the exit code."""
    from ringleader.doctor.image_inspection import collect
    from ringleader.doctor.software_findings import judge
    from ringleader.finding import fails

    facts = collect(environ=os.environ, seconds=timeout, progress=_progress)
    _progress("")
    findings = judge(facts)
    checks = [one.plain() for one in findings]
    if as_json:
        name = facts.manifest.get("name") if facts.manifest else None
        print(json.dumps({"image": name, "ok": not fails(findings), "checks": checks}, indent=2))
    else:
        print(table_of(checks))
    return 3 if fails(findings) else 0


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def table_of(checks: Sequence[Mapping[str, str]]) -> str:
    """Return the findings as a table for people."""
    from tabulate import tabulate

    rows = []
    for one in checks:
        words = f"{one['what']}\n→ {one['do']}" if one.get("do") else one["what"]
        rows.append((one["id"], one["level"], words))
    return str(tabulate(rows, headers=("check", "", "what"), maxcolwidths=[None, None, COLUMN]))
