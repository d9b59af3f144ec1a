"""From a job to its outcome: prepare it, start it, look after it, clean up.

A user waits for the first rank: mpirun's supervisor starts before anything else, and what is needed only once
mpirun runs is imported while mpirun starts the agents.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ringleader.errors import RefusedError, RequestError
from ringleader.job import Job
from ringleader.launch import open_files_limit, signals
from ringleader.launch.host_probe.probe import probe
from ringleader.launch.mpirun.mpirun_process import MpirunProcess, MpirunStandby
from ringleader.launch.outcome import Listener, Outcome
from ringleader.launch.prepare import Prepared, Prober, prepare
from ringleader.launch.supervision.agent_connections import AgentServer
from ringleader.ranks import job_directory
from ringleader.render.rank_environment import FreePorts

if TYPE_CHECKING:
    from ringleader.fabric.transport_proof.proof import TransportProof
    from ringleader.launch.rank_output.output_files import OutputFiles
    from ringleader.launch.supervision.rank_state import RankState
    from ringleader.launch.supervision.supervisor import Supervisor

EARLY_SECONDS = 10.0


def launch(
    job: Job,
    *,
    environ: Mapping[str, str],
    listener: Listener,
    stdin: int | None = None,
    payload: bytes | None = None,
    prober: Prober = probe,
    early: float = EARLY_SECONDS,
    standby: MpirunStandby | None = None,
) -> Outcome:
    """Run a job to its end.

    ``environ``: the caller's environment. ``stdin``: a descriptor that rank 0 may read. ``payload``: the
    pickled call of ``ringleader.run``. ``early``: seconds after which a rank that ended with 0 while others
    run is worth a warning. ``standby``: mpirun's supervisor, where it was started already; closed here. While
    it runs, SIGINT, SIGTERM, SIGHUP and SIGQUIT are served here (in the main thread). Raises RequestError,
    ProbeError, RefusedError, and StoppedError for a signal, before anything runs, and LaunchError where the
    MPI started nothing, or something else than the plan.
    """
    began = time.monotonic()
    with signals.caught() as caught, contextlib.closing(standby or MpirunStandby()) as standby:
        prepared = prepare(
            job,
            environ=environ,
            listener=listener,
            job_id=os.urandom(6).hex(),
            stop=caught,
            prober=prober,
        )
        with contextlib.closing(prepared):
            supervisor = _supervise(
                prepared, standby, listener, stdin=stdin, payload=payload, early=early, caught=caught
            )
    run = supervisor.job
    ends = run.ends()
    proof = _proof(prepared, run.ranks, listener)
    from ringleader.launch.exit_reason import job_exit  # imported long ago, by the supervisor

    ended = job_exit(
        ends=ends,
        cause=run.cause,
        mpirun_code=run.mpirun.exit_code,
        output=run.mpirun.output(),
        mpi=prepared.mpi,
        aborts=run.aborts(),
        root_cause=supervisor.losses.root_cause(),
    )
    if job.require:
        from ringleader.launch.transport_requirement import judged_exit

        ended = judged_exit(job.require, ended, proof)
    return Outcome(
        **vars(ended),
        ends=ends,
        plan=prepared.plan,
        mpi=prepared.mpi,
        seconds=time.monotonic() - began,
        results=tuple(bytes(state.result) or None for state in run.ranks) if payload is not None else (),
        proof=proof,
        devices=prepared.settings.facts,
    )


def _proof(prepared: Prepared, ranks: Sequence[RankState], listener: Listener) -> TransportProof | None:
    """Judge what carried the job's bytes. Whatever goes wrong in that, the job has ended as it did."""
    if not any(state.traffic for state in ranks):
        return None
    try:
        # Only now, as no job should start later for it.
        from ringleader.fabric.transport_proof.judged_transport import judged_transport
        from ringleader.launch.transport_evidence import host_evidence, mpi_transport

        message = prepared.start_message(0, FreePorts(master=0, jax=0), reads=False)
        evidence = host_evidence(
            prepared.plan,
            mpi_transport(prepared.mpi, {**prepared.environ, **message["env"]}),
            [state.traffic for state in ranks],
            [state.evidence for state in ranks],
        )
        return judged_transport(evidence)
    except Exception as error:
        listener.warning(f"what carried the job's bytes could not be judged: {type(error).__name__}: {error}")
        return None


def _supervise(
    prepared: Prepared,
    standby: MpirunStandby,
    listener: Listener,
    *,
    stdin: int | None,
    payload: bytes | None,
    early: float,
    caught: int | None,
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
            early=early,
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
