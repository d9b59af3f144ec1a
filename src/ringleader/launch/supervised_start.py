"""One start of a job's ranks: mpirun, and the launcher's loop until all have ended.

A user waits for the first rank: what is needed only once mpirun runs is imported while mpirun starts the
agents.
"""

from __future__ import annotations

import contextlib
import os
import selectors
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ringleader.errors import RefusedError, RequestError
from ringleader.job import Job
from ringleader.launch import open_files_limit, signals
from ringleader.launch.mpirun.mpirun_process import MpirunProcess, MpirunStandby
from ringleader.launch.outcome import Listener
from ringleader.launch.prepare import Prepared
from ringleader.launch.supervision.agent_connections import AgentServer
from ringleader.ranks import job_directory

if TYPE_CHECKING:
    from ringleader.launch.rank_output.output_files import OutputFiles
    from ringleader.launch.supervision.supervisor import Supervisor


def supervise(
    prepared: Prepared,
    standby: MpirunStandby,
    listener: Listener,
    *,
    stdin: int | None,
    payload: bytes | None,
    early: float,
    caught: int | None,
    warnings: Callable[[], Sequence[str]],
    earlier: float,
) -> Supervisor:
    """Start mpirun and stay until all has ended; remove what is left, in any case."""
    job, plan = prepared.job, prepared.plan
    token = os.urandom(32).hex()
    with contextlib.ExitStack() as stack:
        needed = open_files_limit.open_files_needed(plan, files=job.output_dir is not None)
        allowed = stack.enter_context(open_files_limit.open_files(needed, standby.process.pid))
        files = _files(job, plan.size)
        if files is not None:
            stack.callback(_close, files, listener)
        selector = stack.enter_context(selectors.PollSelector())  # epoll refuses a regular file as stdin
        job_directory.sweep(prepared.directory.rpartition("/")[0], prepared.key)
        stack.callback(_job_directory(prepared).leave)
        server = AgentServer(
            selector,
            token=token,
            addresses=prepared.addresses,
            ranks=plan.size,
            lost_after=job.lost_after,
        )
        mpirun = MpirunProcess(
            selector,
            standby,
            argv=prepared.command.argv,
            environment=prepared.mpirun_environment(port=server.port, token=token),
            directory=prepared.directory,
            key=prepared.key,
            grace=job.grace,
        )
        stack.callback(mpirun.close)
        stack.callback(server.close)
        # mpirun and the agents start meanwhile.
        from ringleader.launch.supervision.running_job import RunContext
        from ringleader.launch.supervision.supervisor import Supervisor
        from ringleader.render import library_log_variables  # noqa: F401 - the first start message needs it

        context = RunContext(
            job=job,
            plan=plan,
            mpi=prepared.mpi,
            listener=listener,
            start=lambda rank, ports: prepared.start_message(
                rank, ports, reads=stdin is not None, open_files=allowed
            ),
            payload=payload,
            files=files,
            stdin=stdin,
            earlier=earlier,
            early=early,
            warnings=warnings,
            sessions_lost=prepared.ssh.lost if prepared.ssh is not None else tuple,
        )
        supervisor = Supervisor(context, selector, server, mpirun)
        with signals.caught(signals.WHILE_RUNNING) as others:
            supervisor.run(caught, others)
        if job.extra_mpirun_args and mpirun.output():
            listener.warning(mpirun.output().rstrip())
        return supervisor


def _job_directory(prepared: Prepared) -> job_directory.JobDirectory:
    """Make the job's directory here, with the hostfile in it. Raises RefusedError where it has no room."""
    directory = None
    try:
        directory = job_directory.JobDirectory(prepared.directory, prepared.key)
        Path(directory.path, "hostfile").write_text(prepared.command.hostfile, encoding="utf-8")
    except OSError as error:
        if directory is not None:
            directory.leave()
        raise RefusedError(
            f"cannot be written: {error.strerror or error}",
            where=prepared.directory,
            hint="make room there, or name another directory with TMPDIR",
        ) from None
    return directory


def _close(files: OutputFiles, listener: Listener) -> None:
    """Close the files of ``--output`` and say what did not fit into them."""
    if lost := files.close():
        listener.warning(lost)


def _files(job: Job, ranks: int) -> OutputFiles | None:
    if job.output_dir is None:
        return None
    from ringleader.launch.rank_output.output_files import OutputFiles

    try:
        return OutputFiles(job.output_dir, ranks)
    except OSError as error:
        raise RequestError(f"cannot make {error.filename}: {error.strerror}", where="--output")
