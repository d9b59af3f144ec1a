"""From a job to its outcome: prepare it, start it, look after it, clean up.

A user waits for the first rank: mpirun's supervisor starts before anything else, and what is needed only once
mpirun runs is imported while mpirun starts the agents.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ringleader.errors import RingleaderError, StoppedError
from ringleader.job import Job
from ringleader.launch import signals
from ringleader.launch.host_probe.probe import probe
from ringleader.launch.mpirun.mpirun_process import MpirunStandby
from ringleader.launch.outcome import Listener, Outcome
from ringleader.launch.prepare import Prepared, Prober, prepare
from ringleader.launch.supervised_start import supervise
from ringleader.render.rank_environment import FreePorts

if TYPE_CHECKING:
    from ringleader.fabric.transport_proof.proof import TransportProof
    from ringleader.launch.outcome import JobExit, Restart
    from ringleader.launch.supervision.rank_state import RankState
    from ringleader.launch.supervision.running_job import RunningJob
    from ringleader.launch.warm_hosts import WarmHosts

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
    if job.elastic is not None:
        from ringleader.launch.elastic.launch_elastic import launch_elastic

        return launch_elastic(
            job, environ=environ, listener=listener, stdin=stdin, payload=payload, standby=standby
        )
    starts = _Starts(job, environ, listener, prober)
    with signals.caught() as caught, contextlib.closing(starts):
        while True:
            with contextlib.closing(standby or MpirunStandby()) as standby:
                ended = starts.start(standby, caught, stdin=stdin, payload=payload, early=early)
            if ended is not None:
                break
            standby = None
    return starts.outcome(ended, payload is not None)


class _Starts:
    """The starts of one job: the first, and one after each failure while ``job.max_restarts`` allows it."""

    def __init__(self, job: Job, environ: Mapping[str, str], listener: Listener, prober: Prober) -> None:
        self.job, self.environ, self.listener, self.prober = job, environ, listener, prober
        self.began = time.monotonic()
        self.run_id = os.urandom(6).hex()
        self.first_ranks: float | None = None
        """When ranks ran for the first time (``time.monotonic``)."""
        self.restarts: list[Restart] = []
        self.warm: WarmHosts | None = None
        if job.warm:
            from ringleader.launch.warm_hosts import WarmHosts  # few jobs need it

            self.warm = WarmHosts(job)

    def close(self) -> None:
        """End what has outlived the starts."""
        if self.warm is not None:
            self.warm.close()

    def start(
        self,
        standby: MpirunStandby,
        caught: int | None,
        *,
        stdin: int | None,
        payload: bytes | None,
        early: float,
    ) -> _Ended | None:
        """Start all ranks and stay until they have ended; ``None``: they are to start again."""
        prepared = self._prepared(caught)
        if prepared is None:
            return None
        if self.warm is not None:
            if self.warm.directory:
                prepared = replace(prepared, warm_ranks=self.warm.directory)
            else:
                self.warm.start(prepared, self.environ)
        with contextlib.closing(prepared):
            supervisor = supervise(
                prepared,
                standby,
                self.listener,
                stdin=stdin,
                payload=payload,
                early=early,
                caught=caught,
                warnings=tuple if self.warm is None else self.warm.warnings,
                earlier=0.0 if self.first_ranks is None else time.monotonic() - self.first_ranks,
            )
        run = supervisor.job
        if self.first_ranks is None and run.started_at is not None:
            self.first_ranks = run.began + run.started_at
        from ringleader.launch.exit_reason import job_exit  # imported long ago, by the supervisor

        ended = job_exit(
            ends=run.ends(),
            cause=run.cause,
            mpirun_code=run.mpirun.exit_code,
            output=run.mpirun.output(),
            mpi=prepared.mpi,
            aborts=run.aborts(),
            root_cause=supervisor.losses.root_cause(),
        )
        if ended.exit_code and self.job.max_restarts:
            from ringleader.launch.restarts import restart_after

            again = restart_after(ended, run.cause, interrupted=run.interrupted, **self._so_far())
            if again is not None:
                self._again(again)
                return None
        return _Ended(prepared, run, ended)

    def _prepared(self, caught: int | None) -> Prepared | None:
        """Ask the hosts and place the ranks; ``None``: a host did not answer, and they are asked again."""
        number = len(self.restarts)
        job = self.job
        if number and job.output_dir is not None:
            job = replace(job, output_dir=f"{job.output_dir}/restart.{number}")
        try:
            return prepare(
                job,
                environ=self.environ,
                listener=self.listener,
                job_id=os.urandom(6).hex() if number else self.run_id,
                stop=caught,
                prober=self.prober,
                run_id=self.run_id,
                restart=number,
            )
        except RingleaderError as error:
            if not number:
                raise
            from ringleader.launch.restarts import PAUSE_SECONDS, restart_after_refusal

            if isinstance(error, StoppedError):
                raise StoppedError(error.number, f"restart {number} began") from None
            again = restart_after_refusal(error, **self._so_far())
            if again is None:
                self.listener.warning(f"restart {number} of {job.max_restarts} could not begin")
                raise
            self._again(again)
            if caught is not None and select.select([caught], [], [], PAUSE_SECONDS)[0]:
                raise signals.stopped(caught) from None
            return None

    def _so_far(self) -> dict[str, Any]:
        """Return what decides on a restart besides what has happened."""
        at = time.monotonic() - self.began
        return {"made": len(self.restarts), "most": self.job.max_restarts, "at": at}

    def _again(self, restart: Restart) -> None:
        self.restarts.append(restart)
        self.listener.warning(str(restart))

    def outcome(self, end: _Ended, with_results: bool) -> Outcome:
        """Return how the job ended, by the end of its last start."""
        ended, run, prepared = end.ended, end.run, end.prepared
        proof = _proof(prepared, run.ranks, self.listener)
        if self.job.require:
            from ringleader.launch.transport_requirement import judged_exit

            ended = judged_exit(self.job.require, ended, proof)
        return Outcome(
            **vars(ended),
            ends=run.ends(),
            plan=prepared.plan,
            mpi=prepared.mpi,
            seconds=time.monotonic() - self.began,
            restarts=tuple(self.restarts),
            results=tuple(bytes(state.result) or None for state in run.ranks) if with_results else (),
            proof=proof,
            differences=tuple(report for state in run.ranks for report in state.differences),
            devices=prepared.settings.facts,
        )


class _Ended(NamedTuple):
    """The end of all ranks after which none starts again."""

    prepared: Prepared
    run: RunningJob
    ended: JobExit


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
