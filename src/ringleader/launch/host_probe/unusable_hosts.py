"""What keeps hosts that did answer from taking part in a job. Pure.

Every host is compared with the one that launches: same Python, Ringleader, MPI and script. Hosts that did not
answer are explained in ``ssh/failure_messages``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ringleader.agents.hardware import NVIDIA_SMI
from ringleader.agents.host_facts_script import name_asked
from ringleader.errors import Fault
from ringleader.launch.host_probe.host_answer import (
    HostReport,
    interpreted_script,
    script_of,
    wanted_interfaces,
)
from ringleader.plan.job import Host, Job
from ringleader.render.hostfile import bare_name

OLDEST_PYTHON = (3, 11)
"""The oldest that Ringleader's package allows."""
MORE_TIME = "or allow more time: --start-timeout"
_COPY = "copy it there, use a shared file system, or send it with --sync"
Words = Iterator[tuple[str, str]]
"""What is wrong with a host, and what to do about it."""


def faults_of(job: Job, reports: Sequence[HostReport], ours: HostReport) -> tuple[Fault, ...]:
    """Return everything wrong with the hosts that answered. ``ours``: the report of this machine."""
    takes_ranks = any(report.is_local for report in reports)
    # Where --python names another interpreter and no ranks run here, the first host sets the version.
    wanted = ours.python_version or next((report.python_version for report in reports), "")
    found = [
        Fault(where=report.where, what=what, hint=hint)
        for report in reports
        for what, hint in (
            *_program_faults(job, report),
            *_interface_faults(job, report),
            *_python_faults(report, wanted),
            *_ringleader_faults(job, report, ours),
            *_mpi_faults(report, ours),
            *_gpu_faults(report),
            *_file_faults(job, report, ours),
            *_name_faults(report, ours, takes_ranks=takes_ranks),
        )
    ]
    if ours.hostname in ours.unresolved and any(not report.is_local for report in reports):
        what = f"its own name {ours.hostname} does not resolve, on which an MPI hangs when it starts"
        hint = f"add a line to /etc/hosts: ADDRESS {ours.hostname}"
        found.append(Fault(where="this machine", what=what, hint=hint))
    return tuple(found)


def hosts_without(hosts: Sequence[Host], faults: Sequence[Fault]) -> tuple[Host, ...]:
    """Return the hosts for which no fault is reported; none where a fault is not that of one of them."""
    names = {f"host {host.name}": host.name for host in hosts}
    bad = {names.get(fault.where) for fault in faults}
    return () if None in bad else tuple(host for host in hosts if host.name not in bad)


def platform_faults(platforms: Mapping[str, str]) -> tuple[Fault, ...]:
    """Return what is wrong with places (a host, this machine) by their ``sys.platform``: ranks need Linux."""
    names = {"darwin": "macOS", "win32": "Windows"}
    return tuple(
        Fault(
            where=where,
            what=f"this is {names.get(platform, platform)}; ranks need Linux",
            hint="use a Linux machine, virtual machine or container, or start the job from here with "
            "--on kubernetes; image, render, report and the Kubernetes commands work here too",
        )
        for where, platform in platforms.items()
        if not platform.startswith("linux")
    )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _python_faults(report: HostReport, wanted: str) -> Words:
    found = report.python_version
    hint = "use the same Python everywhere, or name the right interpreter with --python"
    if tuple(int(part) for part in _minor(found).split(".")) < OLDEST_PYTHON:
        oldest = ".".join(str(part) for part in OLDEST_PYTHON)
        yield f"{report.python} is Python {found} there; Ringleader needs {oldest} or later", hint
    elif _minor(found) != _minor(wanted):
        yield f"{report.python} is Python {found} there, {wanted} elsewhere", hint


def _ringleader_faults(job: Job, report: HostReport, ours: HostReport) -> Words:
    there = "there" if job.container is None else f"in image {job.container}"
    install = f"{report.python} -m pip install ringleader=={ours.ringleader_version}"
    missing = ours.agent and not report.agent
    # An older Ringleader has its agent elsewhere: that is another version, not none.
    if missing and report.ringleader_version in ("", ours.ringleader_version):
        yield f"Ringleader is not installed {there} for {report.python}", install
    elif report.ringleader_version != ours.ringleader_version:
        yield f"Ringleader is {report.ringleader_version} {there}, {ours.ringleader_version} here", install
    elif report.ringleader_checksum != ours.ringleader_checksum:
        what = f"Ringleader is another build of {ours.ringleader_version} {there} ({report.agent})"
        yield what, f"install the same build {'on every host' if job.container is None else there}"


def _mpi_faults(report: HostReport, ours: HostReport) -> Words:
    if ours.mpirun and not report.mpirun:
        hint = f"install the same MPI ({ours.mpi_version}) at the same path, or choose another with --mpi"
        yield f"the MPI does not exist: no {ours.mpirun}", hint
    elif report.mpi_version and ours.mpi_version and report.mpi_version != ours.mpi_version:
        what = f"{report.mpirun} is version {report.mpi_version} there, {ours.mpi_version} here"
        yield what, "use one version on every host, or choose another MPI with --mpi"


def _gpu_faults(report: HostReport) -> Words:
    if NVIDIA_SMI in report.unread:  # ranks without a GPU would be started where there may be eight
        yield f"its GPUs are not known: {NVIDIA_SMI} did not answer in time", MORE_TIME


def _file_faults(job: Job, report: HostReport, ours: HostReport) -> Words:
    if not report.workdir:
        hint = "send it with --sync, use a shared file system, or name another: --workdir"
        yield f"the working directory {job.workdir} does not exist", hint
    elif ours.script and report.script == "" and not report.unreadable:
        yield f"the script does not exist ({script_of(job)} in {report.directory or job.workdir})", _copy(job)
    elif ours.script and report.script and report.script != ours.script:
        sums = f"SHA-256 {report.script[:12]}… there, {ours.script[:12]}… here"
        yield (
            f"the script {script_of(job)} differs from ours: {sums}",
            "copy ours there, use a shared file system, or send it with --sync",
        )


def _copy(job: Job) -> str:
    """Return what to do about a missing file."""
    if job.code is None:
        return _COPY
    return f"name it by its path from {job.code.source}; what .gitignore names there is not sent"


def _program_faults(job: Job, report: HostReport) -> Words:
    if not report.workdir:
        return
    if report.program == "":
        hint = "check the spelling; give its full path, or install it"
        yield f"the program {job.command[0]} does not exist", hint
    elif report.unstartable:
        hint = "correct that line, or name the interpreter in front of it"
        yield f"the program {job.command[0]} cannot be started there: {report.unstartable}", hint
    elif report.unreadable:
        script = interpreted_script(job.command)
        yield f"the script {report.unreadable} ({script} in {report.directory or job.workdir})", _copy(job)


def _interface_faults(job: Job, report: HostReport) -> Words:
    there = ", ".join(f"{key} ({', '.join(found)})" for key, found in report.interfaces.items() if found)
    for name in wanted_interfaces(job):
        if not report.interfaces.get(name):
            lacks = "has no address" if name in report.interfaces else "does not exist"
            yield f"network interface {name} {lacks}", f"--network-interface takes one of: {there}"


def _name_faults(report: HostReport, ours: HostReport, *, takes_ranks: bool) -> Words:
    own = (bare_name(report.host.name), report.hostname, "localhost")
    for name in report.unresolved:
        # A name that does not resolve here either is an ssh alias, which nothing but ssh ever uses.
        used = name != ours.hostname or takes_ranks
        if not used or name in ours.unresolved or name in own:
            continue
        if name_asked(name) in (*report.unread, *ours.unread):
            yield f"the name {name} was not resolved in time", f"look at its resolver, {MORE_TIME}"
        else:
            hint = "add every host of the job to its /etc/hosts or DNS, or use addresses"
            yield f"the name {name} does not resolve there", hint
    # Our own name may mean anything there: the MPI's daemons get our address.
    for name in () if report.is_local else report.looped:
        if name not in (*own, ours.hostname):
            what = f"the name {name} means itself there ({', '.join(report.names[name])})"
            yield what, f"give {name} its real address in /etc/hosts there"
