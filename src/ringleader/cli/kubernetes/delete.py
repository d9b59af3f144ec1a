"""``ringleader delete``: jobs and everything that belongs to them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ringleader.cli.kubernetes.connection import Place, with_cluster
from ringleader.cli.options.host_options import Faults
from ringleader.cli.options.kubernetes_options import CLUSTER_OPTIONS, cluster_words
from ringleader.errors import Fault, RefusedError, RequestError

if TYPE_CHECKING:
    from ringleader.launch.kubernetes.job_snapshot import JobView

HELP = """Delete each JOB with everything that belongs to it, and wait until its Pods are gone."""


class DeleteCommand(click.Command):
    """A command whose words arrive as a few values."""

    def invoke(self, ctx: click.Context) -> int:
        """Delete the jobs; return the exit code."""
        params, faults = ctx.params, Faults()
        seconds = faults.seconds("--timeout", params["timeout"])
        if faults.found:
            raise RequestError(faults.found)

        async def doing(place: Place) -> None:
            await _delete(
                place,
                tuple(dict.fromkeys(params["jobs"])),
                seconds=60.0 if seconds is None else seconds,
                waits=not params["no_wait"],
                dry_run=params["dry_run"],
            )

        with_cluster(cluster_words(params), doing)
        return 0


command = DeleteCommand(
    "delete",
    params=[
        click.Option(["--no-wait"], is_flag=True, help="Do not wait until the Pods are gone."),
        click.Option(["--timeout"], metavar="SECONDS", help="Wait so long for them. [default: 60]"),
        click.Option(["--dry-run"], is_flag=True, help="Say what would be deleted."),
        *CLUSTER_OPTIONS,
        click.Argument(["jobs"], nargs=-1, required=True, metavar="JOB..."),
    ],
    help=HELP,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


async def _delete(
    place: Place, names: tuple[str, ...], *, seconds: float, waits: bool, dry_run: bool
) -> None:
    """Delete what is there; what is not, or cannot be deleted, is told together at the end."""
    from ringleader.launch.kubernetes.job_deletion import remove, until_gone
    from ringleader.launch.kubernetes.job_lookup import find_job

    faults: list[Fault] = []
    gone: list[JobView] = []
    for name in names:
        try:
            job = await find_job(place.cluster, name, place.namespace)
            if not dry_run:
                await remove(place.cluster, job)
            gone.append(job)
            print(f"{name} would be deleted" if dry_run else f"{name} deleted", flush=True)
        except RefusedError as error:
            faults += error.faults
    for job in gone if waits and not dry_run else ():
        try:
            await until_gone(place.cluster, job, seconds=seconds, tell=_tell)
        except RefusedError as error:
            faults += error.faults
    if faults:
        raise RefusedError(faults)


def _tell(text: str) -> None:
    print(f"ringleader: {text}", file=sys.stderr)
