"""From a job to its outcome: prepare it, start its ranks, look after them, start them again, clean up.

A user waits for the first rank: mpirun's supervisor starts before anything else, and what is needed only once
mpirun runs is imported while mpirun starts the agents. What decides before any start is in ``launch_plan``.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringleader.agents import job_directory
from ringleader.errors import ProbeError, RefusedError, RequestError, RingleaderError, StoppedError
from ringleader.launch import signals
from ringleader.launch.host_probe.probe import probe
from ringleader.launch.launch_plan import Prepared, Prober, prepare
from ringleader.launch.mpirun.mpirun_process import MpirunProcess, open_files, open_files_needed
from ringleader.launch.outcome import Listener, Outcome, Restart
from ringleader.launch.supervision.agent_connections import AgentServer
from ringleader.plan.job import Job, check
from ringleader.render.rank_environment import FreePorts

if TYPE_CHECKING:
    from ringleader.launch.job_record import JobRecord
    from ringleader.launch.outcome import JobExit
    from ringleader.launch.preforked_hosts import PreforkedHosts
    from ringleader.launch.supervision.mpirun_session import Supervisor
    from ringleader.launch.supervision.ranks import RankState

EARLY_SECONDS = 10.0
LEAST = 1024 * 1024
"""Bytes that connections of a host have to have moved."""
PAUSE_SECONDS = 5.0
"""Before the hosts are probed again for a restart, where one of them did not answer."""


def launch(
    job: Job,
    *,
    environ: Mapping[str, str],
    listener: Listener,
    stdin: int | None = None,
    payload: bytes | None = None,
    prober: Prober = probe,
    early: float = EARLY_SECONDS,
    standby: MpirunProcess | None = None,
    record: JobRecord | None = None,
) -> Outcome:
    """Run a job to its end.

    ``environ``: the caller's environment. ``stdin``: a descriptor that rank 0 may read. ``payload``: the
    pickled call of ``ringleader.run``. ``early``: seconds after which a rank that ended with 0 while others
    run is worth a warning. ``standby``: mpirun's supervisor, where it was started already; closed here.
    ``record``: what the run is recorded in. While it runs, SIGINT, SIGTERM, SIGHUP and SIGQUIT are served
    here (in the main thread). Raises RequestError, ProbeError, RefusedError, and StoppedError for a signal,
    before anything runs, and LaunchError where the MPI started nothing, or something else than the plan.
    """
    with contextlib.ExitStack() as stack:
        if job.sync.wanted and job.code is None:
            from ringleader.launch.code_files import frozen, kept, sentence  # few jobs need it

            job = frozen(check(job), environ, listener.progress)
            listener.warning(sentence(job))
            stack.enter_context(kept(job))
        if job.elastic is not None:
            from ringleader.launch.elastic.launch_elastic import launch_elastic

            return launch_elastic(
                job,
                environ=environ,
                listener=listener,
                stdin=stdin,
                payload=payload,
                standby=standby,
                record=record,
            )
        if job.profile_dir is not None:
            _make_trace_directory(Path(job.profile_dir))
        starts = _Starts(
            job, environ, listener, prober, stdin=stdin, payload=payload, early=early, record=record
        )
        caught = stack.enter_context(signals.caught())
        stack.enter_context(contextlib.closing(starts))
        while True:
            with contextlib.closing(standby or MpirunProcess()) as mpirun:
                outcome = starts.start(mpirun, caught)
            if outcome is not None:
                return outcome
            standby = None


class _Starts:
    """The starts of one job: the first, and one after each failure while ``job.max_restarts`` allows it.

    Any failure counts, as with torchrun's ``--max-restarts``: of a rank, of an MPI's daemon, of a host. What
    the user ends stays ended: a signal, a time-out, output that nobody reads.
    """

    def __init__(
        self,
        job: Job,
        environ: Mapping[str, str],
        listener: Listener,
        prober: Prober,
        *,
        stdin: int | None,
        payload: bytes | None,
        early: float,
        record: JobRecord | None,
    ) -> None:
        self.record = record
        self.job, self.environ, self.listener, self.prober = job, environ, listener, prober
        self.stdin, self.payload, self.early = stdin, payload, early
        self.began = time.monotonic()
        self.run_id = os.urandom(6).hex()
        self.first_ranks: float | None = None
        """When ranks ran for the first time (``time.monotonic``)."""
        self.restarts: list[Restart] = []
        self.preforked: PreforkedHosts | None = None
        if job.warm:
            from ringleader.launch.preforked_hosts import PreforkedHosts  # few jobs need it

            self.preforked = PreforkedHosts(job)

    def close(self) -> None:
        """End what has outlived the starts."""
        if self.preforked is not None:
            self.preforked.close()

    def start(self, mpirun: MpirunProcess, caught: int | None) -> Outcome | None:
        """Start all ranks and stay until they have ended; ``None``: they are to start again."""
        prepared = self._prepared(caught)
        if prepared is None:
            return None
        if self.preforked is not None:
            if self.preforked.directory:
                prepared = replace(prepared, warm_ranks=self.preforked.directory)
            else:
                self.preforked.start(prepared, self.environ)
        with contextlib.closing(prepared):
            run = self._supervised(prepared, mpirun, caught)
        if self.first_ranks is None and run.started_at is not None:
            self.first_ranks = run.began + run.started_at
        from ringleader.launch.exit_reason import follows_a_restart  # imported by the supervisor

        ended, left = run.job_exit(), self.job.max_restarts - len(self.restarts)
        if follows_a_restart(ended, run.cause, interrupted=run.interrupted, left=left):
            self._again(ended.reason, ended)
            found = () if run.host_faults is None else run.host_faults.found
            bad = {one.host for one in found if one.is_fault}
            if bad and self.job.spare_hosts:  # those whose devices are not well become the spare ones
                hosts = sorted(self.job.hosts, key=lambda host: host.name in bad)
                self.job = replace(self.job, hosts=tuple(hosts))
            return None
        return self._outcome(prepared, run, ended)

    def _prepared(self, caught: int | None) -> Prepared | None:
        """Probe the hosts and place the ranks; ``None``: a host did not answer, and they are probed again.

        The first start is not a restart: hosts that do not exist then were never there.
        """
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
        except StoppedError as error:
            raise StoppedError(error.number, f"restart {number} began") if number else error from None
        except RingleaderError as error:
            if not number:
                raise
            if number >= job.max_restarts or not isinstance(error, ProbeError):
                self.listener.warning(f"restart {number} of {job.max_restarts} could not begin")
                raise
            self._again(str(error))
            if caught is not None and select.select([caught], [], [], PAUSE_SECONDS)[0]:
                raise signals.stopped(caught) from None
            return None

    def _again(self, reason: str, ended: JobExit | None = None) -> None:
        """Note and report that all ranks start again."""
        first = None if ended is None else ended.first_failure
        restart = Restart(
            number=len(self.restarts) + 1,
            most=self.job.max_restarts,
            at=time.monotonic() - self.began,
            reason=reason,
            rank=None if first is None else first.rank,
            host="" if first is None else first.host,
            exit_code=None if ended is None else ended.exit_code,
        )
        self.restarts.append(restart)
        self.listener.warning(str(restart))
        if self.record is not None:
            self.record.happened("restart", f"all ranks, {restart.number} of {restart.most}", reason)

    def _supervised(self, prepared: Prepared, mpirun: MpirunProcess, caught: int | None) -> Supervisor:
        """Start mpirun and stay until all has ended; remove what is left, in any case."""
        job, plan, listener = prepared.job, prepared.plan, self.listener
        token = os.urandom(32).hex()
        with contextlib.ExitStack() as stack:
            needed = open_files_needed(plan, files=job.output_dir is not None)
            allowed = stack.enter_context(open_files(needed, mpirun.process.pid))
            files = None
            if job.output_dir is not None:
                from ringleader.launch.rank_output import opened

                files = stack.enter_context(opened(job.output_dir, plan.size, listener))
            selector = stack.enter_context(selectors.DefaultSelector())
            job_directory.sweep(prepared.directory.rpartition("/")[0], prepared.key)
            stack.callback(_job_directory(prepared).leave)
            server = AgentServer(
                selector,
                token=token,
                addresses=prepared.addresses,
                ranks=plan.size,
                lost_after=job.lost_after,
            )
            stack.callback(mpirun.close)
            stack.callback(server.close)
            mpirun.start(
                selector,
                argv=prepared.command.argv,
                environment=prepared.mpirun_environment(port=server.port, token=token),
                directory=prepared.directory,
                key=prepared.key,
                grace=job.grace,
                container=None if prepared.container is None else prepared.container.order,
            )
            # mpirun and the agents start meanwhile.
            from ringleader.launch.supervision.mpirun_session import Supervisor
            from ringleader.launch.supervision.session import Channels

            channels = Channels(
                selector=selector,
                server=server,
                listener=listener,
                files=files,
                stdin=self.stdin,
                payload=self.payload,
                open_files=allowed,
                record=self.record,
            )
            supervisor = Supervisor(
                prepared,
                channels,
                mpirun,
                early=self.early,
                earlier=0.0 if self.first_ranks is None else time.monotonic() - self.first_ranks,
                warnings=tuple if self.preforked is None else self.preforked.warnings,
            )
            with signals.caught(signals.WHILE_RUNNING) as others:
                supervisor.run(caught, others)
            if job.extra_mpirun_args and mpirun.output():
                listener.warning(mpirun.output().rstrip())
            return supervisor

    def _outcome(self, prepared: Prepared, run: Supervisor, ended: JobExit) -> Outcome:
        """Return how the job ended, by the end of its last start."""
        ranks = tuple(run.ranks.values())
        if self.job.profile_dir is not None:
            _keep_traces(Path(self.job.profile_dir), ranks, self.listener)
        proof = None
        told = [state.evidence for state in ranks if state.evidence is not None]
        is_worth = len(ranks) > 1 and any(self.job.require or may_have_exchanged(words) for words in told)
        if is_worth or any(state.traffic for state in ranks):
            # Only now, as no job should start later for it, and one that exchanged nothing end later.
            from ringleader.launch.job_transport import judged_proof

            message = prepared.start_message(0, FreePorts(master=0, jax=0), reads=False)
            variables = {**prepared.environ, **message["env"]}
            proof = judged_proof(prepared.plan, prepared.mpi, variables, ranks, warn=self.listener.warning)
        if self.job.require:
            from ringleader.launch.job_transport import judged_exit

            ended = judged_exit(self.job.require, ended, proof)
        return Outcome(
            **vars(ended),
            ends=run.ends(),
            plan=prepared.plan,
            mpi=prepared.mpi,
            seconds=time.monotonic() - self.began,
            restarts=tuple(self.restarts),
            results=() if self.payload is None else tuple(bytes(state.result) or None for state in ranks),
            proof=proof,
            differences=tuple(report for state in ranks for report in state.differences),
            hang=run.hang,
            stragglers=run.slow_ranks(),
            host_faults=() if run.host_faults is None else tuple(run.host_faults.found),
            devices=prepared.settings.facts,
        )


def _make_trace_directory(directory: Path) -> None:
    """Raises RequestError where traces cannot be written, or would be mixed with those of another job."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        earlier = next(directory.glob("rank-*.json.gz"), None)
    except OSError as error:
        what = f"cannot make {error.filename or directory}: {error.strerror or error}"
        raise RequestError(what, where="--profile-dir") from None
    if earlier is not None:
        what, hint = f"{directory} has traces of another job", "name another directory, or remove them"
        raise RequestError(what, where="--profile-dir", hint=hint)


def _keep_traces(directory: Path, ranks: Sequence[RankState], listener: Listener) -> None:
    """Give the traces that have arrived their names."""
    for state in ranks:
        if state.trace is not None:
            try:
                if state.trace_error is not None:
                    raise state.trace_error
                state.trace.replace(state.trace.with_suffix(""))
            except OSError as error:
                what = f"the trace of rank {state.rank} cannot be written: {error.strerror or error}"
                listener.warning(f"{error.filename or directory}: {what}")
    with contextlib.suppress(OSError):
        for left in directory.glob("rank-*.json.gz.part"):  # unwritten, or of a start before this one
            left.unlink()


def may_have_exchanged(evidence: Mapping[str, Any]) -> bool:
    """Say whether ranks of a host that reported nothing may have exchanged something worth a verdict."""
    connections = evidence.get("connections", {})
    pairs = sum(sent + received for _ours, _others, sent, received in connections.get("pairs", ()))
    return bool(evidence.get("logs") or evidence.get("verbs") or connections.get("missing")) or pairs > LEAST


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
