"""``ringleader doctor``: what this host has for jobs; with ``--image`` what an image is worth."""

from __future__ import annotations

import os

from ringleader.cli.doctor.doctor_options import DOCTOR_OPTIONS, DoctorOptions
from ringleader.cli.doctor.image_check import check_image, table_of
from ringleader.cli.json_output import show
from ringleader.cli.options.option_checks import unwritable, write_text
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RequestError

HELP = """Say what this host has for jobs; with --image try it, and say what to fix.

Alone it tells what a job would find here: addresses, Python, MPI, frameworks, cores, GPUs, ssh, /dev/shm,
limits. Nothing is started or loaded. --image loads the libraries, prints their versions, starts sshd on
a free loopback port with throw-away keys, and two ranks from there. It runs inside an image, as any
user, and on any machine. The exit code is 3 where a check failed.
"""


def doctor(options: DoctorOptions) -> int:
    """Look at this host, or try the image; return the exit code."""
    if options.sbom == "-" and options.image:
        raise RequestError(Fault(where="--sbom -", what="with --image both would be standard output"))
    if options.sbom:
        write_sbom(options.sbom)
        if not options.image:
            return 0
    if options.image:
        return check_image(options.timeout, options.json)
    from ringleader.doctor import document_of
    from ringleader.doctor.host_findings import findings
    from ringleader.finding import has_fault

    found = findings(os.environ)
    checks = [document_of(one) for one in found]
    show(options.json, {"ok": not has_fault(found), "checks": checks}, lambda: f"{table_of(checks)}\n")
    return 3 if has_fault(found) else 0


def write_sbom(path: str) -> None:
    """Write the list of packages. Raises RequestError where the file cannot be written."""
    faults = unwritable("--sbom", path)
    if faults:
        raise RequestError(faults)
    from ringleader.doctor.installed_packages import sbom_text

    write_text(path, sbom_text())


command = Command("doctor", options=DoctorOptions, run=doctor, params=list(DOCTOR_OPTIONS), help=HELP)
