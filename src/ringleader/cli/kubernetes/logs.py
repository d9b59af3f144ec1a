"""``ringleader logs``: what a job's launcher, or a worker, has written."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from ringleader.cli.kubernetes.connection import Connection, with_cluster
from ringleader.cli.kubernetes.job_terminal import tell
from ringleader.cli.options.kubernetes_options import ClusterOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.kube.api_errors import ApiError, UnreachableError
from ringleader.kube.pod_view import PodView
from ringleader.kube.retry import Outage, may_pass
from ringleader.launch.kubernetes.job_lookup import gather
from ringleader.launch.kubernetes.job_snapshot import JobSnapshot
from ringleader.launch.kubernetes.pod_log import follow_log
from ringleader.launch.kubernetes.progress_line import progress
from ringleader.option_fields import LEAST, argument, flag, group, option

HELP = """Show the log of JOB's launcher, or of one of its workers.

\b
  ringleader logs -f train-x7k2p
  ringleader logs --worker 3 --tail 100 train-x7k2p
"""
LOOK_AGAIN = 0.5
"""Seconds between looks for a Pod that is not there yet."""


@dataclass(frozen=True, kw_only=True)
class LogsOptions:
    """The options, as they were written."""

    follow: bool = flag("Wait for it, and go on until its end.", "-f", "--follow")
    worker: int | None = option(
        "Of this worker, counted from 0. [default: the launcher]", metavar="I", least=0, wrong=LEAST
    )
    tail: int | None = option("The last N lines only.", metavar="N", least=0, wrong=LEAST)
    previous: bool = flag("Of the container's run before the present one.")
    container: str | None = option("[default: the one that runs the job]", metavar="NAME")
    cluster: ClusterOptions = group(ClusterOptions)
    job: str = argument("JOB")
    faults: tuple[Fault, ...] = ()


def logs(options: LogsOptions) -> None:
    """Show the log."""
    faults = Faults(found=list(options.faults))
    worker, tail = options.worker, options.tail
    if options.previous and options.follow:
        faults.add("-f and --previous", "what has ended cannot be followed", "leave one of them out")
    if tail is not None and options.follow:
        faults.add("-f and --tail", "a log that is followed is shown from its beginning", "leave one out")
    if faults.found:
        raise RequestError(faults.found)

    async def doing(connection: Connection) -> None:
        pod, container = await _pod(connection, options.job, worker, waits=options.follow)
        container = options.container or container
        if options.follow:
            await _follow(connection, pod, container)
        else:
            await _show(connection, pod, container, tail=tail, previous=options.previous)

    with_cluster(options.cluster, doing)


command = Command(
    "logs",
    options=LogsOptions,
    run=logs,
    help=HELP,
    no_args_is_help=True,
)


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
        pod = _meant(snapshot, worker)
        if pod is not None and (not waits or _has_log(pod)):
            return pod.name, snapshot.job.launcher_container if worker is None else _first(pod)
        if not waits or snapshot.job.state.is_end:
            raise _no_pod(snapshot, worker)
        text = progress(snapshot).text
        if text != told:
            told = text
            tell(f"{name}: {text}")
        await asyncio.sleep(LOOK_AGAIN)


def _meant(snapshot: JobSnapshot, worker: int | None) -> PodView | None:
    if worker is None:
        return snapshot.launchers[-1] if snapshot.launchers else None
    return next((pod for pod in snapshot.workers if pod.index == worker), None)


def _first(pod: PodView) -> str:
    return next((one.name for one in pod.containers if not one.is_init), "")


def _has_log(pod: PodView) -> bool:
    return pod.phase != "Pending" or any(one.state != "waiting" for one in pod.containers if not one.is_init)


def _no_pod(snapshot: JobSnapshot, worker: int | None) -> RefusedError:
    name = snapshot.job.name
    if worker is not None and worker >= snapshot.job.workers:
        last = snapshot.job.workers - 1
        hint = f"the last one is {last}" if last >= 0 else "its launcher does all the work"
        return RefusedError(Fault(where="--worker", what=f"{name} has no worker {worker}", hint=hint))
    who = "launcher" if worker is None else f"worker {worker}"
    what = f"there is no Pod of its {who} ({snapshot.job.state})"
    return RefusedError(Fault(where=f"job {name}", what=what, hint=f"ringleader explain {name}"))


async def _show(
    connection: Connection, pod: str, container: str, *, tail: int | None, previous: bool
) -> None:
    try:
        async for data in connection.cluster.logs(
            pod, connection.namespace, container=container, tail=tail, previous=previous
        ):
            _write(data)
    except ApiError as error:
        if error.status == 400:
            raise RefusedError(Fault(where=pod, what=error.message)) from error
        raise


async def _follow(connection: Connection, pod: str, container: str) -> None:
    async for data in follow_log(
        connection.cluster, pod, connection.namespace, container=container, outage=Outage(tell), warn=tell
    ):
        _write(data)


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
