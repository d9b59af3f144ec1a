"""``ringleader status``: which jobs there are and where they stand."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ringleader.cli.kubernetes.connection import Place, with_cluster
from ringleader.cli.options.kubernetes_options import CLUSTER_OPTIONS, cluster_words

if TYPE_CHECKING:
    from ringleader.launch.kubernetes.job_snapshot import Facts, JobView

HELP = """Show the jobs of a namespace, or one JOB with its Pods and what it waits for.

\b
  ringleader status
  ringleader status -w
  ringleader status train-x7k2p
"""


class StatusCommand(click.Command):
    """A command whose words arrive as a few values."""

    def invoke(self, ctx: click.Context) -> int:
        """Show the jobs; return the exit code."""
        name, params = ctx.params["job"], ctx.params

        async def doing(place: Place) -> None:
            if name:
                await _one(place, name, watch=params["watch"], as_json=params["as_json"])
                return
            everywhere = params["all_namespaces"]
            await _all(place, everywhere=everywhere, watch=params["watch"], as_json=params["as_json"])

        with_cluster(cluster_words(params), doing)
        return 0


command = StatusCommand(
    "status",
    params=[
        click.Option(
            ["-w", "--watch", "watch"],
            is_flag=True,
            help="Go on: a new line for each change. Ends by Ctrl-C.",
        ),
        click.Option(
            ["-A", "--all-namespaces", "all_namespaces"], is_flag=True, help="Jobs of all namespaces."
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON; with -w one object a line."),
        *CLUSTER_OPTIONS,
        click.Argument(["job"], required=False, metavar="[JOB]"),
    ],
    help=HELP,
    context_settings={"help_option_names": ["-h", "--help"]},
)


async def _all(place: Place, *, everywhere: bool, watch: bool, as_json: bool) -> None:
    from ringleader.launch.kubernetes.job_lookup import find_jobs

    space = "" if everywhere else place.namespace
    jobs = await find_jobs(place.cluster, space)
    if not watch:
        _print_jobs(jobs, everywhere=everywhere, as_json=as_json)
        if not jobs and not as_json:
            where = "on the cluster" if everywhere else f"in namespace {place.namespace}"
            print(f"ringleader: no jobs {where}", file=sys.stderr)
        return
    await _watch(place, space, everywhere=everywhere, as_json=as_json, name="")


async def _one(place: Place, name: str, *, watch: bool, as_json: bool) -> None:
    from ringleader.launch.kubernetes.job_lookup import gather

    facts = await gather(place.cluster, name, place.namespace, now=time.time())
    if watch:
        await _watch(place, place.namespace, everywhere=False, as_json=as_json, name=name)
        return
    if as_json:
        print(json.dumps(_facts_json(facts), indent=2))
        return
    _print_jobs([facts.job], everywhere=False, as_json=False)
    _print_pods(facts)


async def _watch(place: Place, space: str, *, everywhere: bool, as_json: bool, name: str) -> None:
    """Print a line for each job that changes; with a name until that job has ended."""
    from ringleader.launch.kubernetes.job_list import Overview
    from ringleader.launch.kubernetes.status_table import job_json, row, widths

    def tell(text: str) -> None:
        print(f"ringleader: {text}", file=sys.stderr)

    overview = Overview(place.cluster, space, name=name, tell=tell)
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


def _print_jobs(jobs: Sequence[JobView], *, everywhere: bool, as_json: bool) -> None:
    from ringleader.launch.kubernetes.status_table import job_json, row, widths

    if as_json:
        print(json.dumps([job_json(job) for job in jobs], indent=2))
        return
    if not jobs:
        return
    now = time.time()
    rows = [row(job, now=now, everywhere=everywhere) for job in (None, *jobs)]
    columns = widths(rows)
    for cells in rows:
        print(_line(cells, columns))


def _print_pods(facts: Facts) -> None:
    from ringleader.launch.kubernetes.job_diagnosis import explain
    from ringleader.launch.kubernetes.status_table import pod_rows, widths

    rows = pod_rows(facts, now=time.time())
    if len(rows) > 1:
        columns = widths(rows)
        print()
        for cells in rows:
            print(_line(cells, columns))
    found = explain(facts)
    if found:
        print()
        print(f"{found[0].where}: {found[0].what}")
        if found[0].hint:
            print(f"    → {found[0].hint}")
        if len(found) > 1:
            print(f"{len(found) - 1} more: ringleader explain {facts.job.name}")


def _facts_json(facts: Facts) -> dict[str, Any]:
    from ringleader.launch.kubernetes.status_table import job_json, pod_json

    return job_json(facts.job) | {"pods": [pod_json(pod) for pod in (*facts.launchers, *facts.workers)]}
