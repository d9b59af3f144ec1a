"""``ringleader explain``: why is a job not running, and what can be done about it."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import click

from ringleader.cli.kubernetes.connection import Place, with_cluster
from ringleader.cli.options.kubernetes_options import CLUSTER_OPTIONS, cluster_words

if TYPE_CHECKING:
    from ringleader.launch.kubernetes.job_snapshot import Facts

HELP = """Say why JOB is not running, or why it failed: what its conditions, Pods and events tell, and what
to do about it."""


class ExplainCommand(click.Command):
    """A command whose words arrive as a few values."""

    def invoke(self, ctx: click.Context) -> int:
        """Explain the job; return the exit code."""
        params = ctx.params

        async def doing(place: Place) -> Facts:
            from ringleader.launch.kubernetes.job_lookup import gather

            return await gather(place.cluster, params["job"], place.namespace, now=time.time())

        facts = with_cluster(cluster_words(params), doing)
        _print_json(facts) if params["as_json"] else _print(facts)
        return 0


command = ExplainCommand(
    "explain",
    params=[
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON."),
        *CLUSTER_OPTIONS,
        click.Argument(["job"], metavar="JOB"),
    ],
    help=HELP,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print(facts: Facts) -> None:
    from ringleader.launch.kubernetes.job_diagnosis import explain
    from ringleader.launch.kubernetes.progress_line import progress

    found = explain(facts)
    print(f"{facts.job.name}: {facts.job.state}")
    for one in found:
        print(f"  {one.where}: {one.what}")
        if one.hint:
            print(f"      → {one.hint}")
    if not found:
        state = facts.job.state
        print("  nothing is in its way" if not state.is_end else f"  {progress(facts).text}")
    for what in facts.hidden:
        print(f"ringleader: not allowed to read {what}: there may be more to it", file=sys.stderr)


def _print_json(facts: Facts) -> None:
    from ringleader.launch.kubernetes.job_diagnosis import explain

    values = {
        "name": facts.job.name,
        "namespace": facts.job.namespace,
        "state": str(facts.job.state),
        "findings": [
            {"kind": one.kind, "where": one.where, "what": one.what, "hint": one.hint}
            for one in explain(facts)
        ],
        "not_allowed_to_read": list(facts.hidden),
    }
    print(json.dumps(values, indent=2))
