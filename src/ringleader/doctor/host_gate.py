"""The gate before the start, ``run --check``: hosts are read, measured and judged; those that fail stay out.

`facts_job` reads, `active_tests` measures, `judgement` judges; `decide` is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ringleader.doctor.facts_job import one_rank_each, read_hosts
from ringleader.doctor.hosts_reading import HostsReading
from ringleader.doctor.judgement import UNREAD, Judgement, judge, since
from ringleader.errors import Fault, RefusedError, RingleaderError, StoppedError
from ringleader.fabric.check_result import CheckResult, Verdict
from ringleader.fabric.checks.kernel_log import OWN_PORT
from ringleader.number_format import plural
from ringleader.plan.job import Host, Job

READ_SECONDS, MEASURE_SECONDS, PROGRAM_SECONDS = 30.0, 50.0, 120.0
"""For reading the hosts, which ``active`` does twice, for measuring between them, and for all of perftest."""
OF_HOSTS = ("kernel.", "active.", "hosts", "port.state", "port.phys", "gpu.ecc", "gpu.remap")
"""Beginnings of checks that count where all hosts fail them, too: others are how the cluster is made."""
MOST_SAID = 3


def checked(
    job: Job,
    *,
    environ: Mapping[str, str],
    progress: Callable[[str], None],
    warn: Callable[[str, str], None],
    read: Callable[..., HostsReading] = read_hosts,
    measure: Callable[..., Any] | None = None,
) -> Job:
    """Return the job without the hosts that fail the checks of ``job.check``.

    ``progress`` gets a line now and then, ``warn`` each host that is left out, and why (or, without a host,
    what all of them fail). Raises RefusedError where too few hosts are left, and what starting a job
    on them raises.
    """
    hosts = _offered(job)
    asked = checking_job(job, hosts)
    progress(f"checking {plural(len(hosts) or 1, 'host')}")
    found = read(asked, environ=environ, seconds=READ_SECONDS * job.patience, progress=progress)
    judged = judge(found.facts, faults=found.faults)
    bad = left_out(judged, hosts)
    fine = tuple(host for host in hosts if host.name not in bad)
    if job.check == "active" and (fine or not (hosts or bad)):
        judged, has_grown = _measured(replace(asked, hosts=fine), found, environ, progress, read, measure)
        bad |= left_out(judged, fine, has_grown=has_grown)
    for text in shared(judged):
        warn("", text)
    return decide(job, hosts, bad, warn)


def checking_job(job: Job, hosts: Sequence[Host]) -> Job:
    """Return the job on the same hosts, by the same MPI and ssh, that reads or measures."""
    return Job(
        command=("true",),
        hosts=tuple(hosts),
        ssh=job.ssh,
        network_interface=job.network_interface,
        mpi=job.mpi,
        python=job.python,
        container=job.container,
        container_engine=job.container_engine,
        container_mounts=job.container_mounts,
        start_timeout=job.start_timeout,
        env=job.env,
        kernel_log=job.kernel_log,
        extra_mpirun_args=job.extra_mpirun_args,
        lost_after=job.lost_after,
        workdir="/",
    )


def dry_run_lines(job: Job) -> list[str]:
    """Return what would be checked, for a dry run."""
    if job.check is None:
        return []
    words = one_rank_each(checking_job(job, job.hosts), seconds=READ_SECONDS * job.patience).command
    lines = [f"{job.check}: on each host one rank: {' '.join(words)}"]
    if job.check == "active":
        lines.append("then messages between the hosts that pass, and the speed of each,")
        lines.append(f"for up to {MEASURE_SECONDS:g} s; then perftest over each RDMA port,")
        lines.append(f"for up to {PROGRAM_SECONDS:g} s together")
    if job.elastic is not None:
        least = f"{job.elastic.min_np} ranks on {plural(job.elastic.min_hosts, 'host')}"
        return [*lines, f"hosts that fail are left out; the job is refused below {least}"]
    if job.spare_hosts:
        most = plural(job.spare_hosts, "failing host")
        return [*lines, f"at most {most} can be left out; the job is refused if more fail"]
    return [*lines, "the job is refused if a host fails"]


def _offered(job: Job) -> tuple[Host, ...]:
    """Return the hosts that there are now; an elastic job may have another source of them."""
    if job.elastic is None:
        return job.hosts
    from ringleader.launch.elastic.available_hosts import first_hosts
    from ringleader.launch.elastic.host_sources import source_of

    source = source_of(job, job.elastic)
    return job.hosts if source.period is None else first_hosts(source, None, warn=lambda text: None)


def _measured(
    job: Job,
    found: HostsReading,
    environ: Mapping[str, str],
    progress: Callable[[str], None],
    read: Callable[..., HostsReading],
    measure: Callable[..., Any] | None,
) -> tuple[Judgement, bool]:
    """Measure between hosts and judge that; also whether counters are judged by what they grew meanwhile."""
    if measure is None:
        from ringleader.doctor.active_tests import measure_hosts

        measure = measure_hosts
    names = [host.name for host in job.hosts] or [*found.facts]
    facts = {name: found.facts[name] for name in names}
    seconds = MEASURE_SECONDS * job.patience
    programs = PROGRAM_SECONDS * job.patience
    results = measure(
        job, facts=facts, environ=environ, seconds=seconds, program_seconds=programs, progress=progress
    )
    if results.failure and not results.failed_host:
        what = f"the hosts could not be measured: {results.failure}"
        raise RefusedError(what, where="--check", hint="--check quick does without measurements")
    later: Mapping[str, Any] = {}
    try:
        if not results.failure:
            later = read(job, environ=environ, seconds=READ_SECONDS * job.patience, progress=progress).facts
    except StoppedError:
        raise
    except RingleaderError:
        later = {}  # what was measured is worth more than how counters grew
    now = {name: since(later[name], one) if name in later else one for name, one in facts.items()}
    return judge(now, measured=results), bool(later)


# --- what follows -----------------------------------------------------------------------------------------


def left_out(judged: Judgement, hosts: Sequence[Host], *, has_grown: bool = False) -> dict[str, Fault]:
    """Return the hosts that fail → why, with what to do. ``has_grown``: counters were read twice.

    A failure of two hosts together, such as a slow pair, is solved without the later one of them.
    """
    names = [host.name for host in hosts] or list(judged.hosts)
    found: dict[str, list[CheckResult]] = {}
    bad = [
        one
        for one in judged.results()
        if (not one.cause and _counts(one, len(judged.hosts)))
        or (has_grown and one.is_bad and one.id in OWN_PORT)
    ]
    for one in sorted(bad, key=lambda one: len(one.hosts) == 2):  # pairs last: one may be left out already
        own = [name for name in names if name in (one.hosts or judged.hosts)] or names
        if one.id.startswith("active.") and len(one.hosts) == 2 and len(names) > 1:
            own = [] if set(one.hosts) & found.keys() else own[-1:]
        for name in own:
            found.setdefault(name, []).append(one)
    return {name: fault_of(name, results) for name, results in found.items()}


def _counts(one: CheckResult, hosts: int) -> bool:
    """Return whether a result is a failure of its hosts. ``hosts``: the number of those that were read."""
    if one.id == UNREAD and not one.hosts:
        return False  # the job that read them ended badly, afterwards
    is_all = hosts > 1 and len(one.hosts) in (0, hosts)
    return one.verdict is Verdict.FAIL and (not is_all or one.id.startswith(OF_HOSTS))


def shared(judged: Judgement) -> list[str]:
    """Return a sentence for each check that all hosts fail alike, and where the job that read them failed."""
    found = [one for one in judged.results() if one.verdict is Verdict.FAIL and not one.cause]
    return [
        f"the job that read the hosts failed: {one.seen}"
        if one.id == UNREAD
        else f"all hosts fail {one.name}: {one.seen}"
        for one in found
        if not _counts(one, len(judged.hosts))
    ]


def fault_of(name: str, results: Sequence[CheckResult]) -> Fault:
    """Return what is said of a host with these failures."""
    said = [f"{one.id if one.subject in one.seen else one.name}: {one.seen}" for one in results[:MOST_SAID]]
    more = [f"and {len(results) - MOST_SAID} more (ringleader doctor)"] if len(results) > MOST_SAID else []
    return Fault(where=f"host {name}", what="; ".join([*said, *more]), hint=results[0].remedy)


def decide(
    job: Job, hosts: Sequence[Host], bad: Mapping[str, Fault], warn: Callable[[str, str], None]
) -> Job:
    """Return the job on the hosts that are not bad. Raises RefusedError where these do not suffice."""
    fine = tuple(host for host in hosts if host.name not in bad)
    needed = max(1, len(hosts) - job.spare_hosts)
    if job.elastic is not None:
        slots = [host.slots for host in fine]
        known = sum(one for one in slots if one is not None) if None not in slots else job.elastic.min_np
        needed = job.elastic.min_hosts if known >= job.elastic.min_np else len(hosts)
    if bad and len(fine) < max(1, needed):
        hint = "with --spare-hosts N it starts without such hosts" if len(hosts) > 1 else ""
        hint = hint if job.elastic is None else "too few hosts are left for --min-np and --min-hosts"
        raise RefusedError([*bad.values(), Fault(where="--check", what="the job is refused", hint=hint)])
    for name, fault in bad.items():
        hint = f"\n    → {fault.hint}" if fault.hint else ""
        warn(name, f"{name} is left out: {fault.what}{hint}")
    if not bad:
        return job
    if job.elastic is not None:
        return replace(job, left_out=tuple(bad))
    return replace(job, hosts=fine, spare_hosts=len(fine) - needed)
