"""Hosts that the command line names, read by a job with one rank on each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ringleader.cli import interrupts
from ringleader.cli.doctor.doctor_options import DoctorOptions
from ringleader.cli.options.host_options import HostOptions, choose_hosts
from ringleader.cli.options.rank_options import RankOptions, make_job
from ringleader.cli.run.command import check_ssh_files, find_lab
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.doctor.hosts_reading import HostsReading
from ringleader.errors import ProbeError
from ringleader.plan.job import Job, check
from ringleader.text_files import read_text

if TYPE_CHECKING:
    from ringleader.fabric.active.measurements import ActiveResults


def job_on_hosts(asked: Job, where: HostOptions, *, environ: Mapping[str, str]) -> Job:
    """Return a job on the hosts that are meant; its command is still to come.

    It runs in ``/``, which every host has: the caller's directory need not exist there, nor here.
    Raises RequestError with all faults.
    """
    named = dataclasses.replace(asked, command=("true",))
    chosen = choose_hosts(where, asked.ssh, environ=environ, read=read_text, find_lab=find_lab)
    job = make_job(named, RankOptions(), chosen=chosen, environ=environ, read=read_text, current_dir="/")
    check(job)
    check_ssh_files(job)
    return job


def read_named_hosts(options: DoctorOptions, *, seconds: float, environ: Mapping[str, str]) -> HostsReading:
    """Read the facts of all hosts within ``seconds``; a line shows how far that has come.

    Where no host can be reached, there are faults alone.
    """
    job = job_on_hosts(options.job, options.hosts, environ=environ)
    with interrupts.held():
        from ringleader.doctor.facts_job import read_hosts
    line = ProgressLine()
    try:
        return read_hosts(job, environ=environ, seconds=seconds, progress=line.show)
    except ProbeError as error:
        return HostsReading(facts={}, faults=error.faults)
    finally:
        line.clear()


def measure_hosts(
    options: DoctorOptions, read: HostsReading, *, seconds: float, environ: Mapping[str, str]
) -> ActiveResults:
    """Measure between the hosts that were read, or on this machine, for about ``seconds``."""
    where = options.hosts
    names_hosts = len(read.facts) > 1 or bool(where.hosts or where.hostfile or where.wants_lab)
    where = where if names_hosts else dataclasses.replace(where, on="local")
    job = job_on_hosts(options.job, where, environ=environ)
    job = dataclasses.replace(job, hosts=tuple(host for host in job.hosts if host.name in read.facts))
    with interrupts.held():
        from ringleader.doctor.active_job import measure
    line = ProgressLine()
    try:
        return measure(
            job, environ=environ, seconds=seconds, progress=line.show, ranks_per_host=ranks_at_once(read)
        )
    finally:
        line.clear()


def ranks_at_once(read: HostsReading) -> int:
    """Return how many ranks of a host compute at once: of one host all that it takes, else one.

    Several hosts may share a machine, as in a lab, and would measure each other.
    """
    if len(read.facts) != 1:
        return 1
    (facts,) = read.facts.values()
    return len(facts.gpus) or max(1, facts.usable_cpus)
