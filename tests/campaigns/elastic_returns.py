"""Hosts that leave while ranks end: a preemption notice, or a discovery script that names them no more.

What has returned 0 is never started again, and the job ends with 0. On one host, and in a lab of two.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator

from elastic_trial import START_SECONDS, HostList, Result, failed, job_of, lab_of, result
from elastic_world import HOST_AGENT, ElasticJob

from ringleader.lab.saved_state import Lab

LONGEST = 2.0
"""Seconds that a rank takes at most, after its last commit."""
STEPS = 100
HOW = ("SIGTERM", "SIGUSR1", "removed")
WHEN = ("after the last commit", "in training")


def returns(words: argparse.Namespace) -> Iterator[Result]:
    """Each kind several times, each in a job of its own; in a lab one of two hosts leaves, or both."""
    draw, in_lab = random.Random(words.seed), words.layout == "lab"
    kinds = [
        (how, when, both) for how in HOW for when in WHEN for both in ((False, True) if in_lab else (True,))
    ]
    kinds = [kind for kind in kinds if words.only in " ".join(map(str, kind))]
    with lab_of(2) if in_lab else contextlib.nullcontext() as lab:
        for _ in range(words.trials):
            for kind in kinds:
                yield _trial(words, lab, draw, *kind)


def _trial(
    words: argparse.Namespace, lab: Lab | None, draw: random.Random, how: str, when: str, both: bool
) -> Result:
    what, listed = f"{how}, {when}", HostList()
    names = tuple(host.name for host in lab.hosts) if lab is not None else ("localhost",)
    leaving = names if both else (draw.choice(names),)
    listed.offer_names(names)
    size, after = 2 * len(names), draw.choice((0.0, LONGEST))
    source = () if lab is not None else ("--host-discovery-script", str(listed.script))
    options = (*source, "--min-np", "1", "--elastic-timeout", "20")
    try:
        with job_of(words, lab, *options, hosts=listed, steps=STEPS, after=after) as job:
            if not _wait(job, lambda: len(job.members()) == size or job.past()):
                return failed(what, "", "does not start", job)
            if when == WHEN[0] and not _wait(job, job.past):
                return failed(what, "", "no rank comes to its last commit", job)
            generation = max((one.generation for one in job.members()), default=0)
            time.sleep(draw.uniform(0.0, LONGEST if when == WHEN[0] else 0.5))
            began = time.monotonic()
            if how == "removed":
                listed.offer_names([name for name in names if name not in leaving])
            else:
                _notify(job, lab, leaving, signal.Signals[how])
            if not _wait(job, lambda: not job.runs()):
                return failed(what, " ".join(leaving), "the job does not end", job)
            job.end()
            return result(
                what, " ".join(leaving), time.monotonic() - began, _faults(job, size, when, generation), job
            )
    finally:
        listed.remove()


def _wait(job: ElasticJob, done: Callable[[], object]) -> bool:
    until = time.monotonic() + START_SECONDS
    while not done() and time.monotonic() < until:
        time.sleep(0.01)
    return bool(done())


def _notify(job: ElasticJob, lab: Lab | None, names: tuple[str, ...], number: int) -> None:
    """Tell the agents of these hosts that they are about to go."""
    for host in lab.hosts if lab is not None else (None,):
        if host is None or host.name in names:
            found = job.of_kind(HOST_AGENT) if host is None else job.on_host(HOST_AGENT, host)
            for pid in sorted(found)[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)


def _faults(job: ElasticJob, size: int, when: str, generation: int) -> list[str]:
    """Return what was not as it must be at a job's end; ``generation``: the one when a host was to leave."""
    outcome, returned = job.outcome(), len(list(job.place.glob("*.returned")))
    faults = [f"exit code {job.launcher.poll()}: {outcome.get('reason')}"] if job.launcher.poll() else []
    elastic = outcome.get("elastic", {})
    if elastic.get("ranks_started") != size:
        faults.append(f"{elastic.get('ranks_started')} ranks were started, not {size}")
    later = generation and elastic.get("generations") != generation  # 0: all had ended by then
    if when == WHEN[0] and (returned != size or later):
        faults.append(f"{returned} ranks returned, in {elastic.get('generations')} generations")
    return faults
