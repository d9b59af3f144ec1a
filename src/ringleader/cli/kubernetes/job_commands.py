"""``ringleader k8s status``, ``explain``, ``logs``, ``delete``: jobs on a cluster; `run_job` sends them."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from ringleader.cli.kubernetes.connection import Connection, tell, with_cluster
from ringleader.cli.options.kubernetes_options import ClusterOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.output import JsonOptions, show
from ringleader.cli.returned_files import ReturnedFiles
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RefusedError, RequestError, collected, refuse
from ringleader.finding import Level
from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.retry import Outage, may_pass
from ringleader.kubernetes.jobs.job_diagnosis import explain, progress
from ringleader.kubernetes.jobs.job_lookup import (
    find_job,
    find_jobs,
    gather,
    jobs_as_they_change,
    with_log_end,
)
from ringleader.kubernetes.jobs.job_state import JobSnapshot, JobView
from ringleader.kubernetes.jobs.job_submission import remove, until_gone
from ringleader.kubernetes.jobs.pod_log import follow_log
from ringleader.kubernetes.jobs.status_table import job_json, pod_json, pod_rows, row, widths
from ringleader.option_fields import LEAST, argument, flag, group, option


@dataclass(frozen=True, kw_only=True)
class StatusOptions:
    """The options, as they were written."""

    watch: bool = flag(
        "Keep watching: print a line (with --json, an object) for each change, until Ctrl-C.", "-w", "--watch"
    )
    all_namespaces: bool = flag("Show jobs of all namespaces.", "-A", "--all-namespaces")
    json: JsonOptions = group(JsonOptions)
    cluster: ClusterOptions = group(ClusterOptions)
    job: str | None = argument("[JOB]", default=None)


@Command.of("status", StatusOptions)
def status_command(options: StatusOptions) -> None:
    """Show the jobs of a namespace, or one JOB with its Pods and what it is waiting for.

    \b
      ringleader k8s status
      ringleader k8s status -w
      ringleader k8s status train-x7k2p
    """
    if options.watch and options.json.json_file is not None:
        raise RequestError("what continues has no single result", where="--watch and --json-file")

    with_cluster(options.cluster, lambda connection: _status(connection, options))


async def _known(connection: Connection, name: str) -> JobSnapshot:
    """Return all that is known of a job now."""
    found = await gather(connection.cluster, name, connection.namespace, now=time.time())
    return await with_log_end(connection.cluster, found)


async def _status(connection: Connection, options: StatusOptions) -> None:
    everywhere = options.all_namespaces and not options.job
    space = "" if everywhere else connection.namespace
    snapshot = await _known(connection, options.job) if options.job else None
    jobs = [snapshot.job] if snapshot is not None else await find_jobs(connection.cluster, space)
    if options.watch:
        name = options.job or ""
        await _watch(connection, space, everywhere=everywhere, as_json=options.json.json, name=name)
        return
    rows = [row(job, now=time.time(), everywhere=everywhere) for job in (None, *jobs)] if jobs else []
    if snapshot is not None:
        pods = _pods_text(snapshot)
        value = job_json(snapshot.job)
        value |= {"pods": [pod_json(pod) for pod in (*snapshot.launchers, *snapshot.workers)]}
        show(options.json, value, lambda: _table(rows) + pods)
        return
    show(options.json, [job_json(job) for job in jobs], lambda: _table(rows))
    if not jobs and not options.json.json:
        tell(f"no jobs {'on the cluster' if everywhere else f'in namespace {space}'}")


async def _watch(connection: Connection, space: str, *, everywhere: bool, as_json: bool, name: str) -> None:
    """Print a line for each job that changes; with a name until that job has ended."""
    columns: list[int] = []
    told: dict[tuple[str, str], tuple[str, ...]] = {}
    async for jobs in jobs_as_they_change(connection.cluster, space, name=name, tell=tell):
        now = time.time()
        lines = {(job.namespace, job.name): row(job, now=now, everywhere=everywhere) for job in jobs}
        if not columns and not as_json:
            header = row(None, now=now, everywhere=everywhere)
            columns = widths([header, *lines.values()])
            print(_line(header, columns), flush=True)
        for job in jobs:
            key = (job.namespace, job.name)
            steady = (*lines[key][:-2], str(job.is_deleting))  # ages grow by themselves
            if told.get(key) != steady:
                told[key] = steady
                print(json.dumps(job_json(job)) if as_json else _line(lines[key], columns), flush=True)
        if name and any(job.state.is_end for job in jobs):
            return
        await asyncio.sleep(0)


def _line(cells: Sequence[str], columns: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, columns, strict=True))
    return "  ".join(padded).rstrip()


def _pods_text(snapshot: JobSnapshot) -> str:
    rows = pod_rows(snapshot, now=time.time())
    text = f"\n{_table(rows)}" if len(rows) > 1 else ""
    found = explain(snapshot)
    if found:
        text += f"\n{found[0].where}: {found[0].what}\n"
        text += f"    → {found[0].hint}\n" if found[0].hint else ""
    if len(found) > 1:
        text += f"{len(found) - 1} more: ringleader k8s explain {snapshot.job.name}\n"
    return text


def _table(rows: Sequence[Sequence[str]]) -> str:
    columns = widths(rows)
    return "".join(f"{_line(cells, columns)}\n" for cells in rows)


EXPLAIN_HELP = """Explain why JOB isn't running or why it failed, and what to do about it. Uses the job's
conditions, Pods, and events."""


@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """The options, as they were written."""

    json: JsonOptions = group(JsonOptions)
    cluster: ClusterOptions = group(ClusterOptions)
    job: str = argument("JOB")


@Command.of("explain", ExplainOptions, help=EXPLAIN_HELP)
def explain_command(options: ExplainOptions) -> None:
    """Explain the job."""
    snapshot = with_cluster(options.cluster, lambda connection: _known(connection, options.job))
    show(options.json, _explanation(snapshot), lambda: _explanation_text(snapshot))
    for what in () if options.json.json else snapshot.hidden:
        tell(f"not allowed to read {what}: there may be more to it")


def _explanation_text(snapshot: JobSnapshot) -> str:
    lines = [f"{snapshot.job.name}: {snapshot.job.state}"]
    found = explain(snapshot)
    for one in found:
        lines += [f"  {one.where}: {one.what}", *([f"      → {one.hint}"] if one.hint else [])]
    if not found:
        is_end = snapshot.job.state.is_end
        lines.append(f"  {progress(snapshot).text}" if is_end else "  nothing is in its way")
    if snapshot.log_end:
        lines.append(f"  the log of {snapshot.launchers[-1].name} ends:")
        lines += [f"    {one}" for one in snapshot.log_end]
    return "".join(f"{line}\n" for line in lines)


def _explanation(snapshot: JobSnapshot) -> dict[str, Any]:
    findings = [
        {
            "kind": _KINDS.get(one.level, one.level.value),
            "where": one.where,
            "what": one.what,
            "hint": one.hint,
        }
        for one in explain(snapshot)
    ]
    return {
        "name": snapshot.job.name,
        "namespace": snapshot.job.namespace,
        "state": str(snapshot.job.state),
        "findings": findings,
        "log_end": list(snapshot.log_end),
        "not_allowed_to_read": list(snapshot.hidden),
    }


_KINDS = {Level.FAULT: "failed"}
"""What the JSON calls a level by another word."""
LOOK_AGAIN = 0.5
"""Seconds between looks for a Pod that does not exist yet."""


@dataclass(frozen=True, kw_only=True)
class LogsOptions:
    """The options, as they were written."""

    follow: bool = flag("Wait for the log, and follow it to its end.", "-f", "--follow")
    worker: int | None = option(
        "Log of this worker, counted from 0. [default: the launcher's]", metavar="I", least=0, wrong=LEAST
    )
    tail: int | None = option("Only the last N lines.", metavar="N", least=0, wrong=LEAST)
    previous: bool = flag("Log of the container's previous run.")
    container: str | None = option(
        "Container of the Pod. [default: the one that runs the job]", metavar="NAME"
    )
    cluster: ClusterOptions = group(ClusterOptions)
    job: str = argument("JOB")
    faults: tuple[Fault, ...] = ()


@Command.of("logs", LogsOptions)
def logs_command(options: LogsOptions) -> None:
    """Show the log of JOB's launcher or of one of its workers.

    \b
      ringleader k8s logs -f train-x7k2p
      ringleader k8s logs --worker 3 --tail 100 train-x7k2p
    """
    faults = Faults(found=list(options.faults))
    if options.previous and options.follow:
        faults.add("-f and --previous", "what has ended cannot be followed", "leave one of them out")
    if options.tail is not None and options.follow:
        faults.add("-f and --tail", "a log that is followed is shown from its beginning", "leave one out")
    refuse(faults.found)

    with_cluster(options.cluster, lambda connection: _logs(connection, options))


async def _pod(connection: Connection, name: str, worker: int | None, *, waits: bool) -> tuple[str, str]:
    """Return the Pod and the container that are meant; wait for them with ``waits``."""
    outage, told = Outage(tell), ""
    while True:
        try:
            snapshot = await gather(connection.cluster, name, connection.namespace, now=0.0)
            outage.over()
        except (ApiError, UnreachableError) as error:
            if not (waits and may_pass(error)):
                raise
            outage.began(error)
            await asyncio.sleep(LOOK_AGAIN)
            continue
        pods = [one for one in snapshot.workers if one.index == worker]
        for pod in snapshot.launchers[-1:] if worker is None else pods:
            mains = [one for one in pod.containers if not one.is_init]
            if not waits or pod.phase != "Pending" or any(one.state != "waiting" for one in mains):
                first = mains[0].name if mains else ""
                return pod.name, snapshot.job.launcher_container if worker is None else first
        if not waits or snapshot.job.state.is_end:
            raise _no_pod(snapshot, worker)
        text = progress(snapshot).text
        if text != told:
            told = text
            tell(f"{name}: {text}")
        await asyncio.sleep(LOOK_AGAIN)


def _no_pod(snapshot: JobSnapshot, worker: int | None) -> RefusedError:
    name, workers = snapshot.job.name, snapshot.job.workers
    if worker is not None and worker >= workers:
        hint = f"the last one is {workers - 1}" if workers else "its launcher does all the work"
        return RefusedError(f"{name} has no worker {worker}", where="--worker", hint=hint)
    who = "launcher" if worker is None else f"worker {worker}"
    what = f"there is no Pod of its {who} ({snapshot.job.state})"
    return RefusedError(what, where=f"job {name}", hint=f"ringleader k8s explain {name}")


async def _logs(connection: Connection, options: LogsOptions) -> None:
    pod, container = await _pod(connection, options.job, options.worker, waits=options.follow)
    cluster, space, container = connection.cluster, connection.namespace, options.container or container
    log: AsyncIterator[bytes]
    files = ReturnedFiles()
    if options.follow:
        log = follow_log(cluster, pod, space, container=container, outage=Outage(tell), warn=tell)
    else:
        log = cluster.logs(pod, space, container=container, tail=options.tail, previous=options.previous)
    try:
        async for data in log:
            sys.stdout.buffer.write(files.feed(data))
            sys.stdout.buffer.flush()
    except ApiError as error:
        if error.status == 400:
            raise RefusedError(error.message, where=pod) from error
        raise


@dataclass(frozen=True, kw_only=True)
class DeleteOptions:
    """The options, as they were written."""

    no_wait: bool = flag("Do not wait until the Pods have ended.")
    timeout: float = option(
        "Time to wait for the Pods. [default: 60]", default=60.0, metavar="SECONDS", unit="seconds"
    )
    dry_run: bool = flag("Print what would be deleted, and stop.")
    cluster: ClusterOptions = group(ClusterOptions)
    jobs: tuple[str, ...] = argument("JOB...")


@Command.of("delete", DeleteOptions)
def delete_command(options: DeleteOptions) -> None:
    """Delete each JOB and everything that belongs to it, and wait until its Pods have ended."""

    with_cluster(options.cluster, lambda connection: _delete(connection, options))


async def _delete(connection: Connection, options: DeleteOptions) -> None:
    """Delete what is there; what is not, or cannot be deleted, is reported together at the end."""
    faults: list[Fault] = []
    gone: list[JobView] = []
    for name in dict.fromkeys(options.jobs):
        with collected(faults, RefusedError):
            job = await find_job(connection.cluster, name, connection.namespace)
            if not options.dry_run:
                await remove(connection.cluster, job)
            gone.append(job)
            print(f"{name} would be deleted" if options.dry_run else f"{name} deleted", flush=True)
    for job in () if options.no_wait or options.dry_run else gone:
        with collected(faults, RefusedError):
            await until_gone(connection.cluster, job, seconds=options.timeout, tell=tell)
    refuse(faults, RefusedError)
