"""Ranks that fail in every phase: killed, by an exception, by an exit code; what the job holds after that."""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict

from elastic_status import KINDS, PHASES
from elastic_trial import (
    GO_ON_SECONDS,
    START_SECONDS,
    STRIKE_SECONDS,
    SURVIVES,
    Result,
    failed,
    job_of,
    lab_of,
    result,
)
from elastic_usage import Usage, growth, lines_of, usage_of
from elastic_world import PROXY, ElasticJob, Member

WORDS = {"kill": "was killed by SIGKILL", "exception": "exit code 1", "exit": "exit code 1"}
MORE_LOOKS = 3
WARM, LOOKS = 20, 50
"""Strikes before what a job holds is looked at first, and from one look to the next."""


def ranks(words: argparse.Namespace) -> Iterator[Result]:
    """Strike ranks of jobs; a new job where one does not go on."""
    campaign = _Campaign(words)
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(lab_of(4)) if words.layout == "lab" else None
        campaign.size = 8 if lab else 4
        while campaign.left > 0:
            with job_of(words, lab, "--max-np", str(campaign.size), *SURVIVES) as job:
                yield from campaign.strike(job)


class _Campaign:
    """What is left to be struck."""

    def __init__(self, words: argparse.Namespace) -> None:
        self.draw, self.left, self.words = random.Random(words.seed), words.kills, words
        self.size = self.done = 0
        self._processes: float = math.inf
        """As many as the job had when it was looked at first."""
        self.plan = [(phase, kind) for phase in PHASES for kind in KINDS]
        self.draw.shuffle(self.plan)

    def strike(self, job: ElasticJob) -> Iterator[Result]:
        """Strike ranks of one job until it does not go on, or none are left to be struck."""
        if not job.wait_until_steady(self.size, START_SECONDS):
            self.left = 0
            yield failed("start", "job", "does not start", job)
            return
        begun, survivor, usages = self.left, "", list[Usage]()
        while self.left > 0:
            struck = begun - self.left
            if struck >= WARM and (struck - WARM) % LOOKS == 0:
                survivor = survivor or job.members()[0].name
                usages.append(self._settled_usage(job, struck, survivor))
            self.left, self.done = self.left - 1, self.done + 1
            spared = survivor if struck < begun * 0.6 else ""
            yield (found := self._struck(job, *self.plan[self.done % len(self.plan)], spared))
            if found["seconds"] is None or job.wrong():
                return
            if spared == "":
                survivor = ""
            time.sleep(self.words.pause)
        if usages:
            usages.append(self._settled_usage(job, begun, survivor))
            yield _grown(job, usages)

    def _settled_usage(self, job: ElasticJob, strikes: int, survivor: str) -> Usage:
        """Look at what the job holds once it has one set of proxies, and nothing of the rank that was struck.

        After `MOST_REPAIRS` failures it starts another one beside that, as it should, and goes over to it.
        """
        until = time.monotonic() + GO_ON_SECONDS
        while time.monotonic() < until and job.runs():
            found = len(job.processes())
            time.sleep(0.2)
            if len(job.of_kind(PROXY)) == self.size and len(job.processes()) == found <= self._processes:
                break
        usage = usage_of(job, strikes, survivor)
        for _ in range(MORE_LOOKS):  # it trains: what one step opens and closes does not grow
            time.sleep(0.3)
            usage = min(usage, usage_of(job, strikes, survivor), key=lambda one: one.descriptors)
        self._processes = min(self._processes, usage.processes)
        return usage

    def _struck(self, job: ElasticJob, phase: str, kind: str, spared: str) -> Result:
        there = job.members()
        at = self.draw.choice((0, self.size - 1, self.draw.randrange(self.size)))
        victim = there[at] if there[at].name != spared else there[(at + 1) % self.size]
        what, mark = f"{kind} in {phase}", len(job.lines)
        word = WORDS["kill" if phase == "init" else kind]
        told = [((f"rank {victim.rank} on", word), 1)]
        if phase == "init":
            others = [one for one in there if one is not victim and one.name != spared]
            second = self.draw.choice([None, self.draw.choice(others)])
            ends = self._in_init(job, kind, victim, second)
            if second is not None:  # it may be in the next generation already, under another number
                told.append((("rank ", WORDS[kind]), 2 if WORDS[kind] == word else 1))
        else:
            ends = [job.strike(victim.name, phase, kind, STRIKE_SECONDS)], {victim.name}
            # A change that was planned may have come before the strike, with another number for the rank.
            told = [((f"rank {job.status(victim.name).get('rank')} on", word), 1)]
        times, hit = ends
        if None in times:
            return failed(what, f"rank {victim.rank}", "the rank could not be struck", job)
        since = max(time for time in times if time is not None)
        went_on = job.wait_for_step(victim.generation, None, GO_ON_SECONDS, since)
        if went_on is None:
            return failed(what, f"rank {victim.rank}", "no step after it", job)
        if not job.wait_until_steady(self.size, GO_ON_SECONDS):
            return failed(what, f"rank {victim.rank}", f"not {self.size} ranks again", job)
        faults = [
            f"not said {times} times: {' … '.join(one)}"
            for one, times in told
            if not job.says(*one, after=mark, times=times)
        ]
        if lost := {one.name for one in there} - hit - {one.name for one in job.members()}:
            faults.append(f"survivors replaced: {sorted(lost)}")
        found = result(what, f"rank {victim.rank}", went_on - since, faults, job)
        first = min(
            (step for step in job.steps() if step.generation > victim.generation and step.at >= since),
            key=lambda step: step.at,
        )
        steps = job.step_seconds(victim.generation)
        undisturbed = {"step": statistics.median(steps)} if steps else {}
        return found | {"begins": job.begin_of(first.generation) - since} | undisturbed

    def _in_init(
        self, job: ElasticJob, kind: str, first: Member, other: Member | None
    ) -> tuple[list[float | None], set[str]]:
        """Kill a rank, and strike another one that joins the next generation: a survivor, or the new one."""
        if other is not None:
            job.order(other.name, "init", kind)
        else:
            job.order_next(kind)
        times = [job.strike(first.name, "idle", "kill", STRIKE_SECONDS)]
        second = other.name if other is not None else job.wait_for_next(STRIKE_SECONDS)
        times.append(job.wait_for_end(second, STRIKE_SECONDS) if second is not None else None)
        return times, {first.name, second or ""}


def _grown(job: ElasticJob, usages: list[Usage]) -> Result:
    """Compare what the job holds with its beginning."""
    what = f"growth, strikes {usages[0].strikes} to {usages[-1].strikes}"
    found = result(what, "job", None, growth(usages), job)
    return found | {"usage": [asdict(one) for one in usages], "table": lines_of(usages)}
