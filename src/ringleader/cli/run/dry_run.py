"""``ringleader run --dry-run``: the steps of a launch up to the point where something would be started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ringleader.agents.rank_evidence import DIRECTORY
from ringleader.launch import signals
from ringleader.launch.launch_plan import Prepared, prepare
from ringleader.launch.outcome import Listener
from ringleader.plan.job import Code, Job
from ringleader.plan.rank_placement import Plan
from ringleader.render.dry_run import code_lines, dry_run_text
from ringleader.render.rank_environment import FreePorts, RankEnvironment
from ringleader.render.transport_settings import dry_run_lines

JOB_ID = "JOB"
"""Stands for the random word that names a job."""
FREE_PORT = "(a free port of the first rank's host)"
OUR_PORT = "PORT"
"""Stands for the port on which the launcher would listen."""
OUR_DIRECTORY = "(the job's directory)"
TOKEN = "SECRET"
"""Stands for the job's secret, which is not shown."""


def dry_run(job: Job, *, environ: Mapping[str, str], listener: Listener) -> str:
    """Return the text of what a launch would do. Hosts are looked at as for a launch, nothing is started.

    ``listener`` is informed about the progress. Raises what a launch would raise until then: RequestError,
    ProbeError, RefusedError, StoppedError.
    """
    from ringleader.doctor.host_gate import dry_run_lines as gate_lines

    if job.sync.wanted and job.code is None:
        from ringleader.launch.code_files import frozen  # few jobs need it

        job = frozen(job, environ, listener.progress, dry=True)
    if job.elastic is not None:
        from ringleader.launch.elastic.job_context import world_environment
        from ringleader.launch.elastic.launch_elastic import first_world

        with signals.caught() as caught:
            prepared = first_world(job, environ=environ, listener=listener, job_id=JOB_ID, stop=caught)
        ours, environment = environ, world_environment(prepared)
    else:
        with signals.caught() as caught:
            prepared = prepare(job, environ=environ, listener=listener, job_id=JOB_ID, stop=caught)
            prepared.close()
        ours, environment = environ, prepared.mpirun_environment(port=OUR_PORT, token=TOKEN)
    return dry_run_text(
        job=prepared.job,
        plan=prepared.plan,
        mpi=prepared.mpi,
        command=prepared.command if job.elastic is None else replace(prepared.command, links={}),
        environment={name: value for name, value in environment.items() if ours.get(name) != value},
        unset=sorted(name for name in ours if name not in environment),
        ranks=[_environment(prepared, rank) for rank in range(prepared.plan.size)],
        settings=dry_run_lines(prepared.settings.shown()),
        check=gate_lines(job),
        containers={}
        if job.elastic is not None or prepared.container is None
        else prepared.container.order["hosts"],
        code=[] if job.code is None else _code_lines(prepared.job, job.code, prepared.plan),
    )


def _code_lines(job: Job, code: Code, plan: Plan) -> list[str]:
    """Return what would be sent, and where."""
    from ringleader.launch.code_files import contents
    from ringleader.launch.host_probe.code_sync import rsync_argv

    sizes = {name: size for name, size, _ in contents(code.source, job.sync.limit)["files"]}
    rsync = rsync_argv(("ssh", "-F", "CONFIG"), code.source, "HOST", "INCOMING", "LAST")
    return code_lines(code, sizes, plan, rsync)


def _environment(prepared: Prepared, rank: int) -> RankEnvironment:
    """Return what a rank's agent would change in the environment that it finds."""
    ports = FreePorts(master=FREE_PORT, jax=FREE_PORT)
    message = prepared.start_message(rank, ports, reads=False)
    values = _log_variables(message, prepared.environ) | message["env"]
    return RankEnvironment(set=dict(sorted(values.items())), unset=message["unset"])


def _log_variables(message: Mapping[str, Any], caller: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of libraries' logs that an agent adds where the rank has none of a library's."""
    found: dict[str, str] = {}
    for variables in message["evidence"]["logs"].values():
        if not any(name in message["env"] or name in caller for name in variables):
            found |= {name: value.replace(DIRECTORY, OUR_DIRECTORY) for name, value in variables.items()}
    return found
