"""From an elastic job to its outcome: find the MPI, ask for hosts, run the loop, clean up."""

from __future__ import annotations

import contextlib
import os
import selectors
import sys
import time
from collections.abc import Mapping
from dataclasses import replace

from ringleader.errors import LaunchError, RefusedError, RequestError, StoppedError
from ringleader.job import Job, check
from ringleader.launch import open_files_limit, signals
from ringleader.launch.elastic.elastic_job import ElasticJob
from ringleader.launch.elastic.elastic_outcome import elastic_history, ends_of, job_exit_of, results_of
from ringleader.launch.elastic.host_offers import HostOffers, first_hosts
from ringleader.launch.elastic.host_sources import MOST_RANKS, source_of
from ringleader.launch.elastic.job_context import ElasticContext
from ringleader.launch.mpirun.mpi_discovery import find_mpi
from ringleader.launch.mpirun.mpirun_process import MpirunStandby
from ringleader.launch.outcome import Listener, Outcome
from ringleader.launch.prepare import why_unusable
from ringleader.launch.rank_output.output_files import OutputFiles
from ringleader.launch.supervision.agent_connections import LOOPBACK, AgentServer
from ringleader.ranks import host_facts_script, job_directory, rank_identity

OPEN_FILES = 1024
"""Files that the launcher may have open: a connection for each rank and host, some for each mpirun."""


def launch_elastic(
    job: Job,
    *,
    environ: Mapping[str, str],
    listener: Listener,
    stdin: int | None = None,
    payload: bytes | None = None,
    standby: MpirunStandby | None = None,
) -> Outcome:
    """Run an elastic job to its end; arguments and errors are ``launch``'s."""
    began = time.monotonic()
    with signals.caught() as caught, contextlib.ExitStack() as stack:
        if standby is not None:
            stack.callback(standby.close)
        context = elastic_context(job, environ=environ, listener=listener, job_id=os.urandom(6).hex())
        source = source_of(context.job, context.elastic)
        try:
            hosts = first_hosts(source, caught, warn=listener.warning)
        except KeyboardInterrupt:
            raise signals.stopped(caught) from None
        offers = HostOffers(source, hosts, context.elastic)
        stack.callback(offers.close)
        run = _run(context, offers, stack, stdin=stdin, payload=payload, caught=caught)
    result = run.state.result
    if result is None or run.worlds.prepared is None:
        reason = result.reason if result is not None else "it ended for no reason that is known"
        if result is not None and result.exit_code - 128 in signals.CAUGHT:
            raise StoppedError(result.exit_code - 128)
        raise LaunchError(reason, where="elastic")
    plan = run.worlds.prepared.ranks.plan
    job_exit = job_exit_of(result, run.ranks.ranks)
    answers = () if payload is None else results_of(run.ranks.ranks, run.state.order, plan, result)
    return Outcome(
        **vars(job_exit),
        ends=ends_of(run.ranks.ranks, run.state.order, plan),
        plan=plan,
        mpi=context.mpi,
        seconds=time.monotonic() - began,
        results=answers,
        elastic=elastic_history(run.events, run.state),
        differences=tuple(report for rank in run.ranks.ranks.values() for report in rank.differences),
    )


def elastic_context(
    job: Job, *, environ: Mapping[str, str], listener: Listener, job_id: str
) -> ElasticContext:
    """Return what all parts of the job share. Raises RequestError, RefusedError."""
    check(job)
    assert job.elastic is not None
    elastic = job.elastic
    job = replace(job, workdir=os.path.abspath(job.workdir or "."))  # noqa: PTH100
    python = job.python or sys.executable
    mpi = find_mpi(job.mpi, environ=environ, python=python)
    if full := why_unusable(environ.get("TMPDIR", "")):
        listener.warning(f"TMPDIR: {full}; the job's own files go to /tmp")
    return ElasticContext(
        job=job,
        elastic=elastic,
        environ=environ,
        mpi=mpi,
        listener=listener,
        job_id=job_id,
        directory=f"{job_directory.base_directory('/tmp', os.getuid())}/{job_id}",
        key=rank_identity.host_key(rank_identity.host_identity()),
        token=os.urandom(32).hex(),
        addresses=own_addresses(),
        python=python,
    )


def own_addresses() -> tuple[str, ...]:
    """Return our addresses, by which hosts that are not known yet may reach us; the loopback's last."""
    found = [address for some in host_facts_script.interfaces().values() for address in some]
    loopback = [address for address in found if address.startswith("127.") or address == "::1"]
    usable = [one for one in found if one not in loopback and not one.startswith("fe80")]
    usable.sort(key=lambda address: ":" in address)
    return tuple(dict.fromkeys([*usable, LOOPBACK]))


def _run(
    context: ElasticContext,
    offers: HostOffers,
    stack: contextlib.ExitStack,
    *,
    stdin: int | None,
    payload: bytes | None,
    caught: int | None,
) -> ElasticJob:
    """Run the loop; whatever is left is removed, in any case."""
    job = context.job
    files = _files(job)
    if files is not None:
        stack.callback(_close, files, context.listener)
    allowed = stack.enter_context(open_files_limit.open_files(OPEN_FILES, os.getpid()))
    selector = stack.enter_context(selectors.PollSelector())
    job_directory.sweep(context.directory.rpartition("/")[0], context.key)
    try:
        directory = job_directory.JobDirectory(context.directory, context.key)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise RefusedError(what, where=context.directory, hint="make room there") from None
    stack.callback(directory.leave)
    server = AgentServer(
        selector, token=context.token, addresses=(LOOPBACK,), ranks=MOST_RANKS, lost_after=job.lost_after
    )
    stack.callback(server.close)
    run = ElasticJob(
        context, selector, server, offers, files=files, stdin=stdin, payload=payload, open_files=allowed
    )
    stack.callback(run.close)
    with signals.caught(signals.WHILE_RUNNING) as others:
        run.run(caught, others)
    return run


def _files(job: Job) -> OutputFiles | None:
    if job.output_dir is None:
        return None
    try:
        return OutputFiles(job.output_dir, job.np or 1)
    except OSError as error:
        raise RequestError(f"cannot make {error.filename}: {error.strerror}", where="--output") from None


def _close(files: OutputFiles, listener: Listener) -> None:
    if lost := files.close():
        listener.warning(lost)
