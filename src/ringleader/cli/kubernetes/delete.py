"""``ringleader delete``: jobs and everything that belongs to them."""

from __future__ import annotations

from dataclasses import dataclass, field

import click

from ringleader.cli.kubernetes.connection import Connection, with_cluster
from ringleader.cli.kubernetes.job_terminal import tell
from ringleader.cli.options.kubernetes_options import CLUSTER_OPTIONS, ClusterOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.typed_command import Command, Option
from ringleader.errors import Fault, RefusedError, RequestError, collected
from ringleader.launch.kubernetes.job_deletion import remove, until_gone
from ringleader.launch.kubernetes.job_lookup import find_job
from ringleader.launch.kubernetes.job_snapshot import JobView

HELP = """Delete each JOB with everything that belongs to it, and wait until its Pods are gone."""


@dataclass(frozen=True, kw_only=True)
class DeleteOptions:
    """The options, as they were written."""

    jobs: tuple[str, ...]
    no_wait: bool = False
    timeout: str | None = None
    dry_run: bool = False
    cluster: ClusterOptions = field(default_factory=ClusterOptions)


def delete(options: DeleteOptions) -> None:
    """Delete the jobs."""
    faults = Faults()
    seconds = faults.seconds("--timeout", options.timeout)
    if faults.found:
        raise RequestError(faults.found)

    async def doing(connection: Connection) -> None:
        await _delete(connection, options, seconds=60.0 if seconds is None else seconds)

    with_cluster(options.cluster, doing)


command = Command(
    "delete",
    options=DeleteOptions,
    run=delete,
    params=[
        Option(["--no-wait"], is_flag=True, help="Do not wait until the Pods are gone."),
        Option(["--timeout"], metavar="SECONDS", help="Wait so long for them. [default: 60]"),
        Option(["--dry-run"], is_flag=True, help="Say what would be deleted."),
        *CLUSTER_OPTIONS,
        click.Argument(["jobs"], nargs=-1, required=True, metavar="JOB..."),
    ],
    help=HELP,
    no_args_is_help=True,
)


async def _delete(connection: Connection, options: DeleteOptions, *, seconds: float) -> None:
    """Delete what is there; what is not, or cannot be deleted, is told together at the end."""
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
            await until_gone(connection.cluster, job, seconds=seconds, tell=tell)
    if faults:
        raise RefusedError(faults)
