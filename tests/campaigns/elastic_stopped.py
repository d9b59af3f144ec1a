"""MPI proxies that are stopped (SIGSTOP) while ranks change their generation, and continued after it.

What an old proxy still does then may not reach the ranks of the new generation: they check every sum.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator

from elastic_trial import (
    GO_ON_SECONDS,
    START_SECONDS,
    STRIKE_SECONDS,
    SURVIVES,
    HostList,
    Result,
    failed,
    job_of,
    lab_of,
    trains,
)
from elastic_world import PROXY, ElasticJob, pids

from ringleader.lab.saved_state import Lab

KINDS = ("as ranks leave for another world", "before ranks leave for another world", "as a rank is replaced")


def stopped(words: argparse.Namespace) -> Iterator[Result]:
    """Stop proxies across changes of two hosts to three, of three to two, and of a rank for another."""
    draw, listed = random.Random(words.seed), HostList()
    with lab_of(3) as lab:
        listed.offer(lab.hosts[:2])
        try:
            with job_of(words, lab, "--max-np", "6", *SURVIVES, hosts=listed) as job:
                if not job.wait_until_steady(4, START_SECONDS):
                    yield failed("start", "job", "does not start", job)
                    return
                present = 2
                for number in range(words.stops):
                    kind = KINDS[number % len(KINDS)]
                    if kind == KINDS[2]:
                        found = _at_a_repair(job, draw, 2 * present)
                    else:
                        present = 5 - present
                        found = _at_a_switch(job, lab, listed, draw, kind, present)
                    yield found
                    if found["faults"]:
                        return
        finally:
            listed.remove()


@contextlib.contextmanager
def _stopped(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _at_a_switch(
    job: ElasticJob, lab: Lab, listed: HostList, draw: random.Random, kind: str, wanted: int
) -> Result:
    """Stop old proxies when a rank has left, or at some moment before it; go on when the next ones work."""
    what, generation, old = f"stopped {kind}", job.members()[0].generation, job.of_kind(PROXY)
    some, known = draw.sample(old, draw.randint(1, len(old))), pids()
    listed.offer(lab.hosts[:wanted])
    until = time.monotonic() + GO_ON_SECONDS
    if kind == KINDS[0]:
        while not job.leaves() and time.monotonic() < until and job.runs():
            pass
    else:
        job.wait_for_new(PROXY, known, GO_ON_SECONDS)
        time.sleep(draw.uniform(0.0, 0.6))
    began = time.monotonic()
    with _stopped(some):  # where ranks still need them, they wait until these go on
        job.wait_for_step(generation, 2 * wanted, 1.5)
        time.sleep(draw.uniform(0.0, 0.3))
    found = trains(what, f"{len(some)} of {len(old)}", 2 * wanted, began, job)
    time.sleep(0.3)
    return found | {"faults": found["faults"] or job.wrong()}


def _at_a_repair(job: ElasticJob, draw: random.Random, size: int) -> Result:
    """Stop one proxy while a rank is killed and replaced: the world stays."""
    there, proxies = job.members(), job.of_kind(PROXY)
    victim, phase = draw.choice(there), draw.choice(("allreduce", "fused", "gradients", "allgather"))
    what = f"stopped {KINDS[2]}"
    job.order(victim.name, phase, "kill")
    began = time.monotonic()
    with _stopped(draw.sample(proxies, 1)):
        time.sleep(draw.uniform(0.05, 0.8))
    if job.wait_for_end(victim.name, STRIKE_SECONDS) is None:
        return failed(what, victim.name, "the rank could not be struck", job)
    found = trains(what, f"1 of {len(proxies)}", size, began, job)
    return found | {"faults": found["faults"] or job.wrong()}
