"""Reads the facts of several hosts: a job with one rank on each, in the environment that ranks have."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ringleader.dataclass_json import from_document
from ringleader.doctor.facts_program import CLOCKS, FACTS
from ringleader.doctor.hosts_reading import HostsReading
from ringleader.errors import Fault, ProbeError, StoppedError
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.readers.host import SECONDS
from ringleader.launch.host_probe.unusable_hosts import hosts_without
from ringleader.launch.outcome import Outcome
from ringleader.launch.rank_answer import JobListener
from ringleader.plan.job import Host, Job

PROGRAM = "ringleader.doctor.facts_program"
Launch = Callable[..., Outcome]
"""``launch``'s shape; tests hand in outcomes of jobs that were not run."""


def one_rank_each(job: Job, *, seconds: float) -> Job:
    """Return the job that reads facts: on the hosts of ``job``, one rank each, whatever its slots.

    The ranks have what the user set: what we would add says nothing about the hosts.
    """
    reading = min(SECONDS * job.patience, seconds)
    log = () if job.kernel_log is None else (job.kernel_log,)
    return dataclasses.replace(
        job,
        command=(job.interpreter(sys.executable), "-P", "-m", PROGRAM, f"{reading:g}", *log),
        transport_settings=False,
        np=None,
        hosts=tuple(Host(name=host.name, slots=1) for host in job.hosts),
        bind="none",
        all_gpus=True,
        share_gpus=True,
        timeout=seconds,
        start_timeout=min(job.start_timeout, seconds),
        workdir="/",
    )


def read_hosts(
    job: Job,
    *,
    environ: Mapping[str, str],
    seconds: float,
    progress: Callable[[str], None] = lambda text: None,
    launch: Launch | None = None,
) -> HostsReading:
    """Read the facts of the job's hosts within ``seconds``.

    Hosts that cannot take part are left out and named; the others are read without them. Raises ProbeError
    where no host can, RequestError, RefusedError and LaunchError as ``launch`` does, and StoppedError.
    """
    run = launch or _launcher()
    job = one_rank_each(job, seconds=seconds)
    listener = JobListener(progress=progress)
    unreachable: list[Fault] = []
    try:
        outcome = run(job, environ=environ, listener=listener)
    except ProbeError as error:
        left = hosts_without(job.hosts, error.faults)
        if not left:
            raise
        unreachable += error.faults
        listener = JobListener(progress=progress)
        outcome = run(dataclasses.replace(job, hosts=left), environ=environ, listener=listener)
    if outcome.whose == "ringleader" and outcome.exit_code > 128:
        raise StoppedError(outcome.exit_code - 128, before="all hosts had answered")
    return _reading(outcome, listener, unreachable)


def _launcher() -> Launch:
    from ringleader.launch.launch_job import launch

    return launch


def _reading(outcome: Outcome, listener: JobListener, faults: Sequence[Fault]) -> HostsReading:
    """Put together what the ranks told."""
    plan = outcome.plan
    names = [plan.hosts[place.host_index].host.name for place in plan.ranks]
    clocks = listener.named(CLOCKS).get(0)
    told = listener.named(FACTS)
    found: dict[str, HostFacts] = {}
    problems = list(faults)
    for rank, name in enumerate(names):
        if name in found:
            continue
        try:
            found[name] = _with_offset(from_document(HostFacts, told[rank]), clocks, rank)
        except KeyError:
            problems.append(Fault(where=f"host {name}", what=_silence(outcome, listener, rank)))
        except ValueError as error:
            problems.append(Fault(where=f"host {name}", what=f"its facts cannot be read: {error}"))
    if outcome.exit_code and len(problems) == len(faults):
        first = outcome.first_failure
        said = _last_words(listener, first.rank) if first is not None else ""
        problems.append(Fault(where="the ranks", what=f"{outcome.reason}{said}"))
    return HostsReading(facts=found, faults=tuple(problems), warnings=tuple(listener.warnings))


def _silence(outcome: Outcome, listener: JobListener, rank: int) -> str:
    """Return why a rank told no facts."""
    first = outcome.first_failure
    if first is not None and first.rank == rank:
        return f"{outcome.reason}{_last_words(listener, rank)}"
    return f"it was stopped before it reported its facts: {outcome.reason or 'its rank ended'}"


def _with_offset(facts: HostFacts, clocks: Any, rank: int) -> HostFacts:
    if not isinstance(clocks, list) or len(clocks) < 2 or rank >= len(clocks):
        return facts
    offset, uncertainty = clocks[rank]
    clock = dataclasses.replace(facts.clock, offset=offset, offset_uncertainty=uncertainty)
    return dataclasses.replace(facts, clock=clock)


def _last_words(listener: JobListener, rank: int) -> str:
    last = [line for line in listener.tail(rank) if line.strip()][-1:]
    return f"; its last words: {last[0]}" if last else ""
