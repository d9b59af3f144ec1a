"""``ringleader status``: which jobs there are and where they stand."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ringleader.cli.json_output import JsonOptions, show
from ringleader.cli.kubernetes.connection import Connection, with_cluster
from ringleader.cli.kubernetes.job_terminal import tell
from ringleader.cli.options.kubernetes_options import ClusterOptions
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RequestError
from ringleader.launch.kubernetes.job_diagnosis import explain
from ringleader.launch.kubernetes.job_list import Overview
from ringleader.launch.kubernetes.job_lookup import find_jobs, gather, with_log_end
from ringleader.launch.kubernetes.job_snapshot import JobSnapshot, JobView
from ringleader.launch.kubernetes.status_table import job_json, pod_json, pod_rows, row, widths
from ringleader.option_fields import argument, flag, group

HELP = """Show the jobs of a namespace, or one JOB with its Pods and what it waits for.

\b
  ringleader status
  ringleader status -w
  ringleader status train-x7k2p
"""


@dataclass(frozen=True, kw_only=True)
class StatusOptions:
    """The options, as they were written."""

    watch: bool = flag(
        "Go on: a new line for each change, with --json an object. Ends by Ctrl-C.", "-w", "--watch"
    )
    all_namespaces: bool = flag("Jobs of all namespaces.", "-A", "--all-namespaces")
    json: JsonOptions = group(JsonOptions)
    cluster: ClusterOptions = group(ClusterOptions)
    job: str | None = argument("[JOB]", default=None)


def status(options: StatusOptions) -> None:
    """Show the jobs."""
    if options.watch and options.json.json_file is not None:
        raise RequestError(Fault(where="--watch and --json-file", what="what goes on has no one result"))

    async def doing(connection: Connection) -> None:
        await (_one(connection, options.job, options) if options.job else _all(connection, options))

    with_cluster(options.cluster, doing)


command = Command(
    "status",
    options=StatusOptions,
    run=status,
    help=HELP,
)


async def _all(connection: Connection, options: StatusOptions) -> None:
    everywhere = options.all_namespaces
    space = "" if everywhere else connection.namespace
    jobs = await find_jobs(connection.cluster, space)
    if options.watch:
        await _watch(connection, space, everywhere=everywhere, as_json=options.json.json, name="")
        return
    show(options.json, [job_json(job) for job in jobs], lambda: _jobs_text(jobs, everywhere=everywhere))
    if not jobs and not options.json.json:
        where = "on the cluster" if everywhere else f"in namespace {connection.namespace}"
        tell(f"no jobs {where}")


async def _one(connection: Connection, name: str, options: StatusOptions) -> None:
    snapshot = await gather(connection.cluster, name, connection.namespace, now=time.time())
    snapshot = await with_log_end(connection.cluster, snapshot)
    if options.watch:
        await _watch(connection, connection.namespace, everywhere=False, as_json=options.json.json, name=name)
        return
    show(
        options.json,
        _values(snapshot),
        lambda: _jobs_text([snapshot.job], everywhere=False) + _pods_text(snapshot),
    )


async def _watch(connection: Connection, space: str, *, everywhere: bool, as_json: bool, name: str) -> None:
    """Print a line for each job that changes; with a name until that job has ended."""
    overview = Overview(connection.cluster, space, name=name, tell=tell)
    columns: list[int] = []
    told: dict[tuple[str, str], tuple[str, ...]] = {}
    async for jobs in overview.run():
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
                print(
                    json.dumps(job_json(job)) if as_json else _line(lines[key], columns),
                    flush=True,
                )
        if name and any(job.state.is_end for job in jobs):
            return
        await asyncio.sleep(0)


def _line(cells: Sequence[str], columns: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, columns, strict=True))
    return "  ".join(padded).rstrip()


def _jobs_text(jobs: Sequence[JobView], *, everywhere: bool) -> str:
    now = time.time()
    return _table([row(job, now=now, everywhere=everywhere) for job in (None, *jobs)]) if jobs else ""


def _pods_text(snapshot: JobSnapshot) -> str:
    rows = pod_rows(snapshot, now=time.time())
    text = f"\n{_table(rows)}" if len(rows) > 1 else ""
    found = explain(snapshot)
    if found:
        text += f"\n{found[0].where}: {found[0].what}\n"
        text += f"    → {found[0].hint}\n" if found[0].hint else ""
    if len(found) > 1:
        text += f"{len(found) - 1} more: ringleader explain {snapshot.job.name}\n"
    return text


def _table(rows: Sequence[Sequence[str]]) -> str:
    columns = widths(rows)
    return "".join(f"{_line(cells, columns)}\n" for cells in rows)


def _values(snapshot: JobSnapshot) -> dict[str, Any]:
    return job_json(snapshot.job) | {
        "pods": [pod_json(pod) for pod in (*snapshot.launchers, *snapshot.workers)]
    }
