"""``ringleader delete``: jobs and everything that belongs to them."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.cli.kubernetes.connection import Connection, with_cluster
from ringleader.cli.kubernetes.job_terminal import tell
from ringleader.cli.options.kubernetes_options import ClusterOptions
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RefusedError, collected
from ringleader.launch.kubernetes.job_deletion import remove, until_gone
from ringleader.launch.kubernetes.job_lookup import find_job
from ringleader.launch.kubernetes.job_snapshot import JobView
from ringleader.option_fields import argument, flag, group, option

HELP = """Delete each JOB with everything that belongs to it, and wait until its Pods are gone."""


@dataclass(frozen=True, kw_only=True)
class DeleteOptions:
    """The options, as they were written."""

    no_wait: bool = flag("Do not wait until the Pods are gone.")
    timeout: float = option(
        "Wait so long for them. [default: 60]", default=60.0, metavar="SECONDS", unit="seconds"
    )
    dry_run: bool = flag("Say what would be deleted.")
    cluster: ClusterOptions = group(ClusterOptions)
    jobs: tuple[str, ...] = argument("JOB...")


def delete(options: DeleteOptions) -> None:
    """Delete the jobs."""

    async def doing(connection: Connection) -> None:
        await _delete(connection, options)

    with_cluster(options.cluster, doing)


command = Command(
    "delete",
    options=DeleteOptions,
    run=delete,
    help=HELP,
    no_args_is_help=True,
)


async def _delete(connection: Connection, options: DeleteOptions) -> None:
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
            await until_gone(connection.cluster, job, seconds=options.timeout, tell=tell)
    if faults:
        raise RefusedError(faults)
