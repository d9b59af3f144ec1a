"""Two failures at once; failures while a world starts, and while ranks go from one generation to the next."""

from __future__ import annotations

import argparse
import os
import random
import signal
import time
from collections.abc import Callable, Iterator

from elastic_hosts import broken
from elastic_status import PHASES
from elastic_trial import (
    GO_ON_SECONDS,
    START_SECONDS,
    STRIKE_SECONDS,
    SURVIVES,
    HostList,
    Result,
    failed,
    healed,
    job_of,
    lab_of,
    result,
    trains,
)
from elastic_world import PROXY, ElasticJob, Member, pids

from ringleader.lab.saved_state import Lab

AT_ONCE = ("two ranks", "a rank and a host", "two hosts", "a proxy and a host agent")
AND_ENDS = ("two ranks, and the end", "two hosts, and the end", "a rank and a host, and the end")
STARTING = ("rank", "new proxy", "host agent", "host")
SWITCHING = ("rank", "new proxy", "old proxy", "host agent", "new host")


def two(words: argparse.Namespace) -> Iterator[Result]:
    """Each kind several times; each in a job of its own."""
    draw = random.Random(words.seed)
    kinds: list[tuple[str, Callable[[argparse.Namespace, Lab, random.Random, str], Result]]] = []
    kinds += [(what, _at_once) for what in AT_ONCE] + [(what, _at_the_end) for what in AND_ENDS]
    kinds += [(f"{who}, while a world starts", _while_a_world_starts) for who in STARTING]
    kinds += [(f"{who}, during a switch", _while_ranks_switch) for who in SWITCHING]
    kinds = [kind for kind in kinds if words.only in kind[0]]
    with lab_of(4) as lab:
        for what, trial in kinds[:: 5 if words.sample else 1]:
            for _ in range(words.trials):
                with healed(lab, lab.hosts[2:]):
                    yield trial(words, lab, draw, what)


def _killed(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _strike(job: ElasticJob, lab: Lab, draw: random.Random, what: str) -> tuple[list[str], int]:
    """Let two things fail at once; return the names of whom it is about, and how many ranks are left.

    The last host or two are those that fail, ranks of the first two are.
    """
    there = [one for one in job.members() if one.name.startswith((lab.hosts[0].name, lab.hosts[1].name))]
    chosen = draw.sample(there, 2 if "two ranks" in what else 1 if "rank" in what else 0)
    phase = draw.choice([phase for phase in PHASES if phase != "init"])
    for one in chosen:
        job.order(one.name, phase, "kill")
    hosts = lab.hosts[2:] if "two hosts" in what else lab.hosts[3:] if "host" in what else ()
    if "proxy" in what:
        broken(lab, lab.hosts[2], "proxy")
    for host in hosts:
        broken(lab, host, "host agent" if "agent" in what else "host")
    for one in chosen:
        job.wait_for_end(one.name, STRIKE_SECONDS)
    return [f"rank {one.rank} on" for one in chosen] + [host.name for host in hosts], 8 - 2 * len(hosts)


def _at_once(words: argparse.Namespace, lab: Lab, draw: random.Random, what: str) -> Result:
    with job_of(words, lab, "--max-np", "8", *SURVIVES) as job:
        if not job.wait_until_steady(8, START_SECONDS):
            return failed(what, "", "does not start", job)
        began, mark = time.monotonic(), len(job.lines)
        told, left = _strike(job, lab, draw, what)
        found = trains(what, ", ".join(told), left, began, job)
        found["faults"] += [f"nobody said {who}" for who in told if not job.says(who, after=mark)]
        return found


def _at_the_end(words: argparse.Namespace, lab: Lab, draw: random.Random, what: str) -> Result:
    """The same in a job that cannot do without them: its last words name who failed, and nobody else."""
    limits = ("--min-np", "8", "--max-np", "8", "--rank-restarts", "0", "--elastic-timeout", "20")
    with job_of(words, lab, *limits) as job:
        if not job.wait_until_steady(8, START_SECONDS):
            return failed(what, "", "does not start", job)
        began = time.monotonic()
        told, _ = _strike(job, lab, draw, what)
        while job.runs() and time.monotonic() < began + GO_ON_SECONDS:
            time.sleep(0.02)
        if job.runs():
            return failed(what, ", ".join(told), "the job does not end", job)
        seconds, outcome = time.monotonic() - began, job.outcome()
        reason, faults = f"{outcome.get('whose')}: {outcome.get('reason')}", []
        if not any(who.removesuffix(" on") in reason for who in told):
            faults.append(f"the end names {reason!r}, and nobody of {', '.join(told)}")
        codes = {128 + signal.SIGKILL, 3} if "rank" in what else {3}
        if job.launcher.poll() not in codes:
            faults.append(f"exit code {job.launcher.poll()}")
        return result(what, ", ".join(told), seconds, faults, job)


def _some_rank(job: ElasticJob, lab: Lab, draw: random.Random) -> Member:
    return draw.choice([one for one in job.members() if one.name.startswith(lab.hosts[1].name)])


def _while_a_world_starts(words: argparse.Namespace, lab: Lab, draw: random.Random, what: str) -> Result:
    """A proxy is killed, so that its world ends; while the next one starts, something else fails."""
    victim = what.partition(",")[0]
    with job_of(words, lab, "--max-np", "8", *SURVIVES) as job:
        if not job.wait_until_steady(8, START_SECONDS):
            return failed(what, "", "does not start", job)
        rank, known = _some_rank(job, lab, draw), pids()
        if victim == "rank":
            job.order(rank.name, "init", "kill")
        broken(lab, lab.hosts[0], "proxy")
        if victim == "rank":
            job.wait_for_end(rank.name, STRIKE_SECONDS)
        else:
            new = job.wait_for_new(PROXY, known, GO_ON_SECONDS)
            time.sleep(draw.uniform(0.0, 0.5))
            if victim == "new proxy":
                _killed(new[:1])
            else:
                broken(lab, lab.hosts[3], victim)
        left = 6 if victim.startswith("host") else 8
        return trains(what, rank.name if victim == "rank" else lab.hosts[3].name, left, time.monotonic(), job)


def _while_ranks_switch(words: argparse.Namespace, lab: Lab, draw: random.Random, what: str) -> Result:
    """A host comes; while ranks leave for the world that has it, something else fails."""
    victim, listed = what.partition(",")[0], HostList()
    listed.offer(lab.hosts[:3])
    try:
        with job_of(words, lab, "--max-np", "8", *SURVIVES, hosts=listed) as job:
            if not job.wait_until_steady(6, START_SECONDS):
                return failed(what, "", "does not start", job)
            rank, old = _some_rank(job, lab, draw), job.of_kind(PROXY)
            if victim == "rank":
                job.order(rank.name, "init", "kill")
            known = pids()
            listed.offer(lab.hosts)
            new = job.wait_for_new(PROXY, known, GO_ON_SECONDS)
            until = time.monotonic() + GO_ON_SECONDS
            while not job.leaves() and time.monotonic() < until and job.runs():
                time.sleep(0.0005)
            if victim == "rank":
                job.wait_for_end(rank.name, STRIKE_SECONDS)
            elif "proxy" in victim:
                _killed((new if victim == "new proxy" else old)[:1])
            else:
                broken(
                    lab, lab.hosts[3] if victim == "new host" else lab.hosts[2], victim.replace("new ", "")
                )
            left = 6 if "host" in victim else 8
            return trains(what, rank.name if victim == "rank" else "", left, time.monotonic(), job)
    finally:
        listed.remove()
