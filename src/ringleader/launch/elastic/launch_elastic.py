"""From an elastic job to its outcome: find the MPI, probe hosts, run the session, clean up; and a dry run."""

from __future__ import annotations

import contextlib
import os
import selectors
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ringleader.agents import host_facts_script, job_directory, rank_identity
from ringleader.errors import LaunchError, RefusedError, RequestError, StoppedError
from ringleader.launch import signals
from ringleader.launch.elastic.available_hosts import AvailableHosts, first_hosts
from ringleader.launch.elastic.elastic_session import ElasticJob, ElasticRank
from ringleader.launch.elastic.host_sources import MOST_RANKS, source_of
from ringleader.launch.elastic.job_context import ElasticContext, prepared_world, world_environment
from ringleader.launch.elastic.layout import chosen_layout, machines_together, size_of
from ringleader.launch.elastic_history import ElasticHistory
from ringleader.launch.host_probe.probe import probe
from ringleader.launch.launch_plan import Prepared, why_unusable
from ringleader.launch.mpirun.mpi_discovery import find_mpi
from ringleader.launch.mpirun.mpirun_process import MpirunProcess, open_files
from ringleader.launch.outcome import Exit, Listener, Outcome
from ringleader.launch.rank_output import opened
from ringleader.launch.supervision.agent_connections import LOOPBACK, AgentServer
from ringleader.launch.supervision.session import Channels
from ringleader.plan.job import Job, check
from ringleader.plan.rank_placement import Plan, slots_of

if TYPE_CHECKING:
    from ringleader.fabric.transport_proof.proof import TransportProof
    from ringleader.launch.job_record import JobRecord

OPEN_FILES = 1024
"""Files that the launcher may have open before it knows the hosts; `Worlds.start` allows more."""


def launch_elastic(
    job: Job,
    *,
    environ: Mapping[str, str],
    listener: Listener,
    stdin: int | None = None,
    payload: bytes | None = None,
    standby: MpirunProcess | None = None,
    record: JobRecord | None = None,
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
        offers = AvailableHosts(
            source, hosts, cooldown=context.elastic.cooldown, period=context.elastic.discovery_seconds
        )
        stack.callback(offers.close)
        run = _run(context, offers, stack, stdin=stdin, payload=payload, caught=caught, record=record)
    result, state = run.state.result, run.state
    if result is None or run.worlds.prepared is None:
        reason = result.reason if result is not None else "it ended for no reason that is known"
        if result is not None and result.exit_code - 128 in signals.CAUGHT:
            raise StoppedError(result.exit_code - 128)
        raise LaunchError(reason, where="elastic")
    proof = _proof(run, run.worlds.prepared)
    plan = run.worlds.prepared.plan
    # Of the last generation, by rank; of a job that had none, those that were started.
    last = [run.ranks[one] for one in state.order or sorted(run.ranks)[: plan.size] if one in run.ranks]
    failed = None if result.failure is None else run.ranks.get(result.failure.incarnation)
    outcome = Outcome(
        hang=run.hang,
        stragglers=run.slow_ranks(),
        host_faults=() if run.host_faults is None else tuple(run.host_faults.found),
        exit_code=result.exit_code,
        whose=result.whose,
        reason=result.reason,
        first_failure=None if failed is None else failed.end,
        ends=tuple(
            replace(
                one.end or run.unknown_end(one, "its end was not reported", stopped="ringleader"), rank=rank
            )
            for rank, one in enumerate(last)
        ),
        plan=plan,
        mpi=context.mpi,
        seconds=time.monotonic() - began,
        results=() if payload is None else _results(last, failed),
        elastic=ElasticHistory(
            generations=state.last_generation,
            worlds=state.last_world,
            ranks_started=state.last_incarnation + 1,
            events=tuple(run.events),
        ),
        proof=proof,
        differences=tuple(report for rank in run.ranks.values() for report in rank.differences),
    )
    if run.host_faults is not None:
        outcome = run.host_faults.quoted(outcome, None if failed is None else failed.place.gpu)
    return _judged(job.require, outcome, proof, run) if job.require else outcome


def _proof(run: ElasticJob, prepared: Prepared) -> TransportProof | None:
    """Judge what carried the job's bytes: all ranks that there were are those of one plan, host by host."""
    ranks = list(run.ranks.values())
    if not any(rank.traffic or rank.evidence for rank in ranks):
        return None
    from ringleader.launch.job_transport import judged_proof

    hosts = {rank.host.host.name: rank.host for rank in ranks}
    names = list(hosts)
    for name in names:  # from before the first rank of a host to after the last
        counted = [rank.evidence for rank in ranks if rank.host.host.name == name and rank.evidence]
        counted = [words for words in counted if "before" in words]
        ends = [words["after"] for words in counted if words.get("after")]
        for words in counted[:1]:
            words["after"] = max(reversed(ends), key=lambda after: after.get("at", 0.0)) if ends else None
    places = [
        replace(rank.place, rank=number, host_index=names.index(rank.host.host.name))
        for number, rank in enumerate(ranks)
    ]
    plan = Plan(hosts=tuple(hosts.values()), ranks=tuple(places))
    variables = world_environment(prepared)
    return judged_proof(plan, prepared.mpi, variables, ranks, warn=run.listener.warning)


def _judged(words: Sequence[str], ended: Exit, proof: TransportProof | None, run: ElasticJob) -> Exit:
    """Return how the job ended in the light of ``--require``.

    A host that was lost has reported nothing; those that it exchanged with have reported their side.
    """
    from ringleader.launch.job_transport import judged_exit

    if proof is not None:
        told = {rank.host.host.name for rank in run.ranks.values() if rank.evidence is not None}
        slots: dict[str, set[int]] = {}
        for rank in run.ranks.values():
            slots.setdefault(rank.host.host.name, set()).add(rank.slot)
        # A rank that was replaced and its replacement are one rank: between them nothing is exchanged.
        hosts = [
            replace(host, ranks=host.ranks[: len(slots[host.host])])
            for host in proof.hosts
            if host.host in told
        ]
        proof = replace(proof, hosts=tuple(hosts))
    return judged_exit(words, ended, proof)


def _results(last: Sequence[ElasticRank], failed: ElasticRank | None) -> tuple[bytes | None, ...]:
    """Return what ranks sent back, pickled, by rank; what one whose failure ended the job sent stands at its
    number."""
    found = {rank: bytes(one.result) for rank, one in enumerate(last)}
    if failed is not None and failed.end is not None:
        found[failed.end.rank] = bytes(failed.result)
    return tuple(found.get(rank) or None for rank in range(max(found, default=-1) + 1))


def elastic_context(
    job: Job, *, environ: Mapping[str, str], listener: Listener, job_id: str
) -> ElasticContext:
    """Return what all parts of the job share. Raises RequestError, RefusedError."""
    check(job)
    assert job.elastic is not None
    if job.require:
        from ringleader.fabric.transport_proof.requirement import parse_requirement  # few jobs need it

        parse_requirement(job.require)
    python = job.python or sys.executable
    if full := why_unusable(environ.get("TMPDIR", "")):
        listener.warning(f"TMPDIR: {full}; the job's own files go to /tmp")
    return ElasticContext(
        job=replace(job, workdir=os.path.abspath(job.workdir or ".")),  # noqa: PTH100
        elastic=job.elastic,
        environ=environ,
        mpi=find_mpi(job.mpi, environ=environ, python=python),
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
    offers: AvailableHosts,
    stack: contextlib.ExitStack,
    *,
    stdin: int | None,
    payload: bytes | None,
    caught: int | None,
    record: JobRecord | None,
) -> ElasticJob:
    """Run the session; whatever is left is removed, in any case."""
    job = context.job
    files = None
    if job.output_dir is not None:
        files = stack.enter_context(opened(job.output_dir, job.np or 1, context.listener))
    allowed = stack.enter_context(open_files(OPEN_FILES, os.getpid()))
    selector = stack.enter_context(selectors.DefaultSelector())
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
    channels = Channels(
        selector=selector,
        server=server,
        listener=context.listener,
        files=files,
        stdin=stdin,
        payload=payload,
        open_files=allowed,
        record=record,
    )
    run = ElasticJob(context, channels, offers)
    stack.callback(run.close)
    with signals.caught(signals.WHILE_RUNNING) as others:
        run.run(caught, others)
    return run


def first_world(
    job: Job, *, environ: Mapping[str, str], listener: Listener, job_id: str, stop: int | None
) -> Prepared:
    """Return what generation 1 would be started with, were all its hosts ready now; nothing is started.

    Raises what a launch would raise until then, and RequestError where the hosts do not suffice.
    """
    context = elastic_context(job, environ=environ, listener=listener, job_id=job_id)
    options = context.elastic
    try:
        hosts = first_hosts(source_of(context.job, options), stop, warn=listener.warning)
        probed = probe(
            replace(context.job, hosts=hosts),
            environ=environ,
            progress=listener.progress,
            mpi=context.mpi,
            stop=stop,
        )
    except KeyboardInterrupt:
        raise signals.stopped(stop) from None
    try:
        reports = {report.host.name: report for report in probed.facts}
        layout = chosen_layout(
            [(name, slots_of(one, share_gpus=job.share_gpus)) for name, one in reports.items()],
            before=(),
            excluded=(),
            most=options.max_np,
            most_hosts=options.max_hosts,
        )
        layout = machines_together(layout, {name: one.identity for name, one in reports.items()})
        if size_of(layout) < options.min_np or len(layout) < options.min_hosts:
            least = f"{options.min_np} ranks on {options.min_hosts} hosts are needed"
            raise RequestError(
                f"{size_of(layout)} slots on {len(layout)} hosts now; {least}", where="--min-np"
            )
        return prepared_world(context, layout, reports, number=1, ssh=probed.ssh)
    finally:
        if probed.ssh is not None:
            probed.ssh.close()
