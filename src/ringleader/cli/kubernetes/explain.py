"""``ringleader explain``: why is a job not running, and what can be done about it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from ringleader.cli.json_output import JsonOptions, show
from ringleader.cli.kubernetes.connection import Connection, with_cluster
from ringleader.cli.kubernetes.job_terminal import tell
from ringleader.cli.options.kubernetes_options import ClusterOptions
from ringleader.cli.typed_command import Command
from ringleader.finding import Level
from ringleader.launch.kubernetes import job_diagnosis
from ringleader.launch.kubernetes.job_lookup import gather, with_log_end
from ringleader.launch.kubernetes.job_snapshot import JobSnapshot
from ringleader.launch.kubernetes.progress_line import progress
from ringleader.option_fields import argument, group

HELP = """Say why JOB is not running, or why it failed: what its conditions, Pods and events tell, and what
to do about it."""


@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """The options, as they were written."""

    json: JsonOptions = group(JsonOptions)
    cluster: ClusterOptions = group(ClusterOptions)
    job: str = argument("JOB")


def explain(options: ExplainOptions) -> None:
    """Explain the job."""

    async def doing(connection: Connection) -> JobSnapshot:
        found = await gather(connection.cluster, options.job, connection.namespace, now=time.time())
        return await with_log_end(connection.cluster, found)

    snapshot = with_cluster(options.cluster, doing)
    show(options.json, _values(snapshot), lambda: _text(snapshot))
    for what in () if options.json.json else snapshot.hidden:
        tell(f"not allowed to read {what}: there may be more to it")


command = Command(
    "explain",
    options=ExplainOptions,
    run=explain,
    help=HELP,
    no_args_is_help=True,
)


def _text(snapshot: JobSnapshot) -> str:
    lines = [f"{snapshot.job.name}: {snapshot.job.state}"]
    found = job_diagnosis.explain(snapshot)
    for one in found:
        lines.append(f"  {one.where}: {one.what}")
        lines += [f"      → {one.hint}"] if one.hint else []
    if not found:
        is_end = snapshot.job.state.is_end
        lines.append(f"  {progress(snapshot).text}" if is_end else "  nothing is in its way")
    if snapshot.log_end:
        lines += [
            f"  the log of {snapshot.launchers[-1].name} ends:",
            *(f"    {one}" for one in snapshot.log_end),
        ]
    return "".join(f"{line}\n" for line in lines)


def _values(snapshot: JobSnapshot) -> dict[str, Any]:
    return {
        "name": snapshot.job.name,
        "namespace": snapshot.job.namespace,
        "state": str(snapshot.job.state),
        "findings": [
            {
                "kind": "failed" if one.level is Level.FAULT else one.level.value,
                "where": one.where,
                "what": one.what,
                "hint": one.hint,
            }
            for one in job_diagnosis.explain(snapshot)
        ],
        "log_end": list(snapshot.log_end),
        "not_allowed_to_read": list(snapshot.hidden),
    }
