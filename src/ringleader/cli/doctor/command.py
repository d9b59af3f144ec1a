"""``ringleader doctor``: what hosts have for jobs; with ``--image`` what an image is worth."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ringleader.cli import interrupts
from ringleader.cli.doctor.doctor_options import EVERYDAY, DoctorOptions
from ringleader.cli.json_output import JsonOptions, opened, show
from ringleader.cli.options.host_options import HostOptions, overridden
from ringleader.cli.options.option_checks import unwritable, write_text
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import Command, given, spelling
from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.option_fields import names_of
from ringleader.plan.job import Job
from ringleader.text_files import read_text

if TYPE_CHECKING:
    from ringleader.cli.json_output import JsonFile
    from ringleader.doctor.hosts_reading import HostsReading

COLUMN = 100
"""Widest text in a column of the table."""


def check_image(seconds: float, json: JsonOptions) -> int:
    """Run every check within ``seconds``, show what came of it; return the exit code."""
    from ringleader.doctor import document_of
    from ringleader.doctor.image_inspection import collect
    from ringleader.doctor.software_findings import judge
    from ringleader.finding import has_fault

    line = ProgressLine(prefix="")
    facts = collect(environ=os.environ, seconds=seconds, progress=line.show)
    line.clear()
    found = tuple(judge(facts))
    checks = [document_of(one) for one in found]
    image = facts.manifest.get("name") if facts.manifest else None
    values: dict[str, Any] = {"image": image, "ok": not has_fault(found), "checks": checks}
    show(json, values, lambda: f"{table_of(checks)}\n")
    return 3 if has_fault(found) else 0


def table_of(checks: Sequence[Mapping[str, str]]) -> str:
    """Return the findings as a table for people."""
    from tabulate import tabulate

    rows = []
    for one in checks:
        words = f"{one['what']}\n→ {one['do']}" if one.get("do") else one["what"]
        rows.append((one["id"], one["level"], words))
    return str(tabulate(rows, headers=("check", "", "what"), maxcolwidths=[None, None, COLUMN]))


HELP = """Say what is wrong with a host, or with several, and what to do about it.

\b
  ringleader doctor
  ringleader doctor -H node1,node2
  ringleader doctor --hostfile hosts.txt --expect profile.toml --active
  ringleader doctor --on kubernetes --nodes pool=gpu --rdma shared
  ringleader doctor --facts > node1.json
  ringleader doctor --image

Alone it reads what a rank on this host would find: NICs, RDMA, GPUs, limits, MPI, frameworks, ssh. Nothing
is started or loaded. With hosts it starts one rank on each, and compares them; on Kubernetes it looks at the
nodes, and starts a Pod on each where --pod-image is given. --image tests an image: it loads libraries, starts
sshd on a free loopback port with throw-away keys, and two ranks from there. The exit code is 3 where a check
failed.
"""
IMAGE_MANIFEST = Path("/usr/share/ringleader/image.json")
"""Where an image says what it has (``images.image_record.PLACE``)."""


def doctor(options: DoctorOptions) -> int:
    """Do what was asked for; return the exit code."""
    faults = [*options.faults(), *without_hosts(options), *unwritable("--sbom", options.sbom)]
    if faults:
        raise RequestError(faults)
    if options.sbom:
        from ringleader.doctor.installed_packages import sbom_text

        write_text(options.sbom, sbom_text())
        if not options.image:
            return 0
    if options.image:
        return check_image(options.timeout, options.json)
    with opened(options.json.json_file) as file:
        if options.on_kubernetes:
            from ringleader.cli.doctor.cluster_nodes import check_nodes

            return check_nodes(options, file)
        return check_hosts(options, file)


def without_hosts(options: DoctorOptions) -> list[Fault]:
    """Return the options about starting ranks that were given although none is started."""
    if options.names_hosts or options.active:
        return []
    naming = {"hosts", "hostfile", "lab", "lab_name", "on", "start_timeout"}
    rest = (names_of(HostOptions) | names_of(Job, where="hosts")) - naming
    hint = "name hosts (-H, --hostfile, --lab), or leave it out"
    return [
        Fault(where=spelling(one), what="means nothing where no rank is started", hint=hint)
        for one in given(click.get_current_context())
        if one.name in rest
    ]


def check_hosts(options: DoctorOptions, file: JsonFile | None) -> int:
    """Read hosts, and do with their facts what was asked for; return the exit code."""
    with interrupts.held():
        from ringleader.cli.doctor import stored_facts
    if options.write_expect is not None:
        stored_facts.check_new(options.write_expect, force=options.force)
    profile = stored_facts.read_profile(options.expect, read_text) if options.expect is not None else None
    read = reading(options)
    for text in read.warnings:
        print(f"ringleader: {text}", file=sys.stderr)
    if options.facts:
        return print_facts(read, file)
    if not read.facts and (options.write_expect is not None or options.active):
        raise RefusedError(read.faults)
    if options.write_expect is not None:
        stored_facts.write_profile(options.write_expect, next(iter(read.facts.values())))
        return 0
    measured = None
    if options.active:
        from ringleader.cli.doctor.named_hosts import measure_hosts

        seconds = min(options.active_seconds, options.timeout)
        measured = measure_hosts(options, read, seconds=seconds, environ=os.environ)
    with interrupts.held():
        from ringleader.cli.doctor.judged_hosts import show_judgement
        from ringleader.doctor.judgement import judge

    judged = judge(read.facts, faults=read.faults, profile=profile, measured=measured)
    return show_judgement(options, read, judged, file)


def reading(options: DoctorOptions) -> HostsReading:
    """Read the facts of the hosts that are meant: of files, of other hosts, of this one."""
    with interrupts.held():
        from ringleader.doctor.hosts_reading import HostsReading
    if options.facts_from:
        from ringleader.cli.doctor.stored_facts import read_facts

        return HostsReading(facts=read_facts(options.facts_from, read_text))
    if options.names_hosts:
        from ringleader.cli.doctor.named_hosts import read_named_hosts

        return read_named_hosts(options, seconds=options.timeout, environ=os.environ)
    with interrupts.held():
        from ringleader.fabric.readers.host import SECONDS, read_host

    facts = read_host(environ=os.environ, seconds=min(SECONDS * options.job.patience, options.timeout))
    if IMAGE_MANIFEST.exists():
        print("ringleader: this is an image of Ringleader: doctor --image tests it", file=sys.stderr)
    return HostsReading(facts={facts.hostname or "this host": facts})


def print_facts(read: HostsReading, file: JsonFile | None) -> int:
    """Print facts as JSON; hosts that could not be read are told on standard error."""
    from ringleader.cli.doctor.stored_facts import facts_document, facts_text

    if file is not None:
        file.write(facts_document(read.facts))
    sys.stdout.write(facts_text(read.facts))
    for fault in read.faults:
        print(f"ringleader: {fault}", file=sys.stderr)
    return 3 if read.faults else 0


command = Command(
    "doctor",
    options=DoctorOptions,
    run=doctor,
    everyday=EVERYDAY,
    overridden=overridden,
    help=HELP,
)
