"""Kills ranks, hosts and links of elastic jobs, and measures how long they take to continue.

    python tests/campaigns/elastic.py [PART …] [--kills 200] [--trials 2] [--stops 100] [--layout host|lab]

``ranks``: one job after the other loses ranks in every phase, killed, by an exception and by an exit code;
every result is checked, survivors are the processes that they were, and what these hold does not grow.
In a lab, as root: ``hosts``: processes of hosts and their links. ``changes``: hosts come and go by a
discovery script. ``two``: two failures at once, while a world starts, during a switch. ``stopped``: MPI
proxies are stopped across a switch. ``returns``, on this host or in a lab (``--layout``): hosts leave while
ranks return. A table is printed; what did not continue is an exception, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import random
import signal
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parent))

from campaign import (
    DAEMON,
    HOST_AGENT,
    PROXY,
    Result,
    a_lab,
    arguments,
    carried_out,
    command_line,
    pids,
    report,
    send,
    until,
)
from elastic_job import ENDLESS, KINDS, PHASES, ElasticJob, growth, held_by

from ringleader.lab import hosts as lab_hosts
from ringleader.lab import kernel_state
from ringleader.lab.saved_state import Lab, LabHost

START_SECONDS, GO_ON_SECONDS, STRIKE_SECONDS = 90.0, 60.0, 30.0
SURVIVES = ("--min-np", "1", "--rank-restarts", "100000")
"""Of jobs that continue whatever happens to their ranks."""
Words = argparse.Namespace
Found = TypeVar("Found")


# --- jobs and results -------------------------------------------------------------------------------------


class HostList:
    """A discovery script that prints what was offered last."""

    def __init__(self, names: Sequence[str]) -> None:
        self._list = Path(f"/tmp/rle-hosts-{os.getpid()}")
        self.script = Path(f"{self._list}.sh")
        self.script.write_text(f"#!/bin/sh\ncat {self._list}\n")
        self.script.chmod(0o755)
        self.offer(names)

    def offer(self, names: Sequence[str]) -> None:
        fresh = self._list.with_suffix(".new")
        fresh.write_text("".join(f"{name}:2\n" for name in names))
        fresh.rename(self._list)

    def __enter__(self) -> HostList:
        return self

    def __exit__(self, *error: object) -> None:
        self._list.unlink(missing_ok=True)
        self.script.unlink(missing_ok=True)


def names_of(hosts: Sequence[LabHost]) -> list[str]:
    return [host.name for host in hosts]


@contextlib.contextmanager
def job_of(
    words: Words,
    lab: Lab | None,
    *more: str,
    hosts: HostList | None = None,
    steps: int = ENDLESS,
    after: float = 0.0,
) -> Iterator[ElasticJob]:
    """Start a job on this host, in a lab, or on the hosts of a list; at the end nothing may be left of it.

    ``after``: seconds that a rank takes at most after this many ``steps``.
    """
    where = ("--oversubscribe",) if hosts is not None else ("-n", "4", "--oversubscribe")
    if lab is not None:
        listed = ("--host-discovery-script", str(hosts.script)) if hosts else ("--hostfile", lab.hostfile)
        where = (*listed, "--ssh-config", lab.ssh_config)
    job = ElasticJob(words=(*where, "--mpi", words.mpi, *more), lab=lab, steps=steps, after=after)
    try:
        yield job
    finally:
        words.left += [f"left by {' '.join(job.argv)}: {one}" for one in job.end()]
        job.close()


class FailedError(Exception):
    """Why a trial failed: the job does not continue, or could not be struck."""


def result(what: str, who: str, seconds: float | None, faults: Sequence[str], job: ElasticJob) -> Result:
    shown = "" if seconds is None else f"{seconds:.3f} s"
    return {
        "line": f"{what:34} {who:16} {shown:>9}",
        "what": what,
        "who": who,
        "seconds": seconds,
        "faults": [*faults, *job.wrong()],
        "argv": job.argv,
        "output": job.lines[-60:],
    }


def tried(what: str, who: str, job: ElasticJob, trial: Callable[[], Result]) -> Result:
    try:
        return trial()
    except FailedError as error:
        code = job.launcher.poll()
        why = f"{error}" + ("" if code is None else f" (the launcher ended with {code})")
        return result(what, who, None, [why], job)


def must(found: Found | None, why: str) -> Found:
    """Return what was found; the trial fails where that is nothing."""
    if not found:
        raise FailedError(why)
    return found


def starts(job: ElasticJob, size: int) -> None:
    must(job.wait_until_steady(size, START_SECONDS), "does not start")


def trains(what: str, who: str, size: int, since: float, job: ElasticJob) -> Result:
    """Wait until this many ranks train; seconds are from ``since`` to the first step of their generation."""
    if not job.wait_until_steady(size, GO_ON_SECONDS):
        there = [(name, last.size, last.generation) for name, last in job.members()]
        raise FailedError(f"not {size} ranks: {there}")
    at = job.wait_for_step(job.generation() - 1, size, GO_ON_SECONDS, since)
    return result(what, who, must(at, f"no step of {size} ranks") - since, [], job)


# --- ranks ------------------------------------------------------------------------------------------------

FAILURES = {"kill": "was killed by SIGKILL", "exception": "exit code 1", "exit": "exit code 1"}


WARM = 20
"""Strikes before what a job holds is looked at first."""


def ranks(words: Words) -> Iterator[Result]:
    """Strike ranks of jobs; a new job where one does not continue."""
    campaign = _Strikes(words)
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(a_lab(4)) if words.layout == "lab" else None
        campaign.size = 8 if lab else 4
        while campaign.left > 0:
            with job_of(words, lab, "--max-np", str(campaign.size), *SURVIVES) as job:
                yield from campaign.strike(job)


class _Strikes:
    """What is left to be struck."""

    def __init__(self, words: Words) -> None:
        self.draw, self.left, self.words = random.Random(words.seed), words.kills, words
        self.size = self.done = 0
        self.plan = [(phase, kind) for phase in PHASES for kind in KINDS]
        self.draw.shuffle(self.plan)

    def strike(self, job: ElasticJob) -> Iterator[Result]:
        """Strike ranks of one job until it does not continue, or none are left to be struck."""
        starts(job, self.size)
        begun, survivor, first = self.left, job.members()[0].name, None
        while self.left > 0:
            self.left, self.done = self.left - 1, self.done + 1
            spared = survivor if self.left > begun * 0.4 else ""
            if begun - self.left == WARM and self.words.layout == "host":
                first = held_by(job, survivor)
            if first is not None and not spared:
                faults = growth(first, held_by(job, survivor), begun - self.left)
                yield result("growth", "job", None, faults, job)
                first = None
            phase, kind = self.plan[self.done % len(self.plan)]
            struck_one = functools.partial(self._struck, job, phase, kind, spared)
            yield (found := tried(f"{kind} in {phase}", "a rank", job, struck_one))
            if found["seconds"] is None or job.wrong():
                return
            time.sleep(self.words.pause)

    def _struck(self, job: ElasticJob, phase: str, kind: str, spared: str) -> Result:
        """Strike a rank; ``init``: kill it, and strike a survivor as that joins the next generation."""
        there, mark = job.members(), len(job.lines)
        at = self.draw.choice((0, self.size - 1, self.draw.randrange(self.size)))
        victim = there[at] if there[at].name != spared else there[(at + 1) % self.size]
        hit, who, word = {victim.name}, f"rank {victim.last.rank}", FAILURES[kind]
        if phase == "init":
            others = [one for one in there if one is not victim and one.name != spared]
            second = self.draw.choice(others).name
            job.order(second, "init", kind)
            job.order(victim.name, "idle", "kill")
            times = [job.wait_for_end(name, STRIKE_SECONDS) for name in (victim.name, second)]
            hit |= {second}
            # The second one may be in the next generation already, under another number.
            same = word == FAILURES["kill"]
            told = [((f"{who} on", FAILURES["kill"]), 1), (("rank ", word), 2 if same else 1)]
        else:
            job.order(victim.name, phase, kind)
            times = [job.wait_for_end(victim.name, STRIKE_SECONDS)]
            # A change that was planned may have come before the strike, with another number for the rank.
            told = [((f"rank {job.logs()[victim.name].steps[-1].rank} on", word), 1)]
        since = max(must(at, "the rank could not be struck") for at in times)
        at_last = job.wait_for_step(victim.last.generation, None, GO_ON_SECONDS, since)
        went_on = must(at_last, "no step after it")
        must(job.wait_until_steady(self.size, GO_ON_SECONDS), f"not {self.size} ranks again")
        faults = [
            f"not said {count} times: {' … '.join(one)}"
            for one, count in told
            if not job.says(*one, after=mark, times=count)
        ]
        if lost := {one.name for one in there} - hit - {one.name for one in job.members()}:
            faults.append(f"survivors replaced: {sorted(lost)}")
        return result(f"{kind} in {phase}", who, went_on - since, faults, job)


# --- hosts and links --------------------------------------------------------------------------------------

HOST_FAULTS = (
    *("proxy", "link 3 s", "host", "host agent", "link 15 s", "link for good", "mpirun daemon"),
    *("ssh sessions", "link 60 s"),
)
UNDISTURBED_SECONDS = 5.0
"""An MPI may continue without the ssh sessions of a host, MPICH's mpiexec without its daemon there, and the
host's proxies do as well: this long they are watched."""
PROCESSES = {
    "proxy": PROXY,
    "mpirun daemon": DAEMON,
    "host agent": HOST_AGENT,
    "ssh sessions": ("sshd:", "sshd-session"),
}


@contextlib.contextmanager
def healed(lab: Lab, hosts: Sequence[LabHost]) -> Iterator[None]:
    try:
        yield
    finally:
        for host in hosts:
            with contextlib.suppress(Exception):
                lab_hosts.heal(lab, host)


def hosts(words: Words) -> Iterator[Result]:
    """Break one host of four, several times in each way; each in its own job."""
    with a_lab(4) as lab:
        chosen = [fault for fault in HOST_FAULTS if words.only in fault]
        for fault in chosen[:: 3 if words.sample else 1]:
            for _ in range(words.trials):
                host = lab.hosts[-1]
                with healed(lab, (host,)), job_of(words, lab, "--max-np", "8", *SURVIVES) as job:
                    breaking = functools.partial(_host_broken, lab, host, job, fault)
                    yield tried(fault, host.name, job, breaking)


def _host_broken(lab: Lab, host: LabHost, job: ElasticJob, fault: str) -> Result:
    starts(job, 8)
    time.sleep(1.0)
    began, generation = time.monotonic(), job.generation()
    broken(lab, host, fault)
    spared = fault == "ssh sessions" or (fault == "mpirun daemon" and "mpich" in job.argv)
    if spared and job.undisturbed(8, UNDISTURBED_SECONDS):
        return result(f"{fault}: nothing is lost", host.name, None, [], job)
    comes_back = fault.endswith(" s")
    patience = float(fault.split()[1]) if comes_back else GO_ON_SECONDS
    went_on = job.wait_for_step(generation, None, patience)
    lost = went_on is not None
    if comes_back:
        time.sleep(max(0.0, began + patience - time.monotonic()))
        lab_hosts.slow(lab, host, None)
        went_on = went_on or job.wait_for_step(generation - 1, None, GO_ON_SECONDS, time.monotonic())
    seconds = must(went_on, "no step after it") - began
    is_named = not lost or fault == "ssh sessions" or job.says(host.name)
    return result(fault, host.name, seconds, [] if is_named else [f"{host.name} is not named"], job)


def broken(lab: Lab, host: LabHost, fault: str) -> None:
    """Break a host. All but links are broken at once."""
    if fault.startswith("link"):
        lab_hosts.cut(lab, host)
        return
    if fault == "host":
        first = kernel_state.first_process(host.namespace)
        found = [first] if first is not None else []
    elif fault == "ssh sessions":  # and not the one that listens, which is process 1
        there = ElasticJob.on_host(PROCESSES[fault], host)
        found = [pid for pid in there if "listener" not in command_line(pid)]
    else:
        found = ElasticJob.on_host(PROCESSES[fault], host)[:1]
    send(signal.SIGKILL, must(found, f"no such process on {host.name}"))


# --- hosts that come and go by a discovery script, also while proxies are stopped --------------------------


@contextlib.contextmanager
def _discovered(words: Words, count: int, present: int) -> Iterator[tuple[Lab, HostList, ElasticJob]]:
    """A job on the first hosts of a lab, as a discovery script names them."""
    most = ("--max-np", str(2 * count))
    with (
        a_lab(count) as lab,
        HostList(names_of(lab.hosts[:present])) as listed,
        job_of(words, lab, *most, *SURVIVES, hosts=listed) as job,
    ):
        starts(job, 2 * present)
        yield lab, listed, job


CHANGES = (
    "as ranks leave for another world",
    "before ranks leave for another world",
    "as a rank is replaced",
)


def changes(words: Words) -> Iterator[Result]:
    """Let hosts come and go; seconds are from the last step before to the first one of all ranks."""
    draw, present = random.Random(words.seed), 2
    with _discovered(words, 4, present) as (lab, listed, job):
        for _ in range(10 * words.trials):
            before, present = present, draw.choice([count for count in (1, 2, 3, 4) if count != present])
            generation, what = job.generation(), f"{before} to {present} hosts"
            listed.offer(names_of(lab.hosts[:present]))
            trains(what, "hosts", 2 * present, 0.0, job)
            first = job.first_step_after(generation)
            yield result(what, "hosts", first.at - job.last_step_before(first), [], job)


def stopped(words: Words) -> Iterator[Result]:
    """Stop proxies (SIGSTOP) across changes of two hosts to three and back, and of a rank for another.

    What an old proxy still does then may not reach the ranks of the new generation: they check every sum.
    """
    draw, present = random.Random(words.seed), 2
    with _discovered(words, 3, present) as (lab, listed, job):
        for number in range(words.stops):
            change = CHANGES[number % len(CHANGES)]
            if change == CHANGES[2]:
                trial = functools.partial(_at_a_repair, job, draw, 2 * present)
            else:
                present = 5 - present
                wanted = names_of(lab.hosts[:present])
                trial = functools.partial(_at_a_switch, job, listed, draw, change, wanted)
            yield (found := tried(f"stopped {change}", "", job, trial))
            if found["faults"]:
                return


@contextlib.contextmanager
def _stopped(processes: list[int]) -> Iterator[None]:
    send(signal.SIGSTOP, processes)
    try:
        yield
    finally:
        send(signal.SIGCONT, processes)


def _at_a_switch(
    job: ElasticJob, listed: HostList, draw: random.Random, change: str, wanted: list[str]
) -> Result:
    """Stop old proxies when a rank has left, or some time before; continue when the next ones work."""
    generation, old, size = job.generation(), job.of_kind(PROXY), 2 * len(wanted)
    some, known = draw.sample(old, draw.randint(1, len(old))), pids()
    listed.offer(wanted)
    if change == CHANGES[0]:
        until(job.leaves, GO_ON_SECONDS, 0.0, job.runs)
    else:
        job.wait_for_new(PROXY, known, GO_ON_SECONDS)
        time.sleep(draw.uniform(0.0, 0.6))
    began = time.monotonic()
    with _stopped(some):  # where ranks still need them, they wait until these continue
        job.wait_for_step(generation, size, 1.5)
        time.sleep(draw.uniform(0.0, 0.3))
    found = trains(f"stopped {change}", f"{len(some)} of {len(old)}", size, began, job)
    time.sleep(0.3)
    return found


def _at_a_repair(job: ElasticJob, draw: random.Random, size: int) -> Result:
    """Stop one proxy while a rank is killed and replaced: the world stays."""
    victim, proxies = draw.choice(job.members()), job.of_kind(PROXY)
    job.order(victim.name, draw.choice(("allreduce", "fused", "gradients", "allgather")), "kill")
    began = time.monotonic()
    with _stopped(draw.sample(proxies, 1)):
        time.sleep(draw.uniform(0.05, 0.8))
    must(job.wait_for_end(victim.name, STRIKE_SECONDS), "the rank could not be struck")
    return trains(f"stopped {CHANGES[2]}", f"1 of {len(proxies)}", size, began, job)


# --- hosts that leave while ranks end: a preemption notice, or a discovery script that names them no more --

LONGEST = 2.0
"""Seconds that a rank takes at most, after its last commit."""
STEPS = 100
HOW = ("SIGTERM", "SIGUSR1", "removed")
LAST_COMMIT, IN_TRAINING = "after the last commit", "in training"


def returns(words: Words) -> Iterator[Result]:
    """Each kind several times, each in its own job; in a lab one of two hosts leaves, or both.

    What has returned 0 is never started again, and the job ends with 0.
    """
    draw, in_lab = random.Random(words.seed), words.layout == "lab"
    how_many = (False, True) if in_lab else (True,)
    kinds = [(how, when, both) for how in HOW for when in (LAST_COMMIT, IN_TRAINING) for both in how_many]
    kinds = [kind for kind in kinds if words.only in " ".join(map(str, kind))]
    with a_lab(2) if in_lab else contextlib.nullcontext() as lab:
        for _ in range(words.trials):
            for kind in kinds:
                yield _leaving(words, lab, draw, *kind)


def _leaving(words: Words, lab: Lab | None, draw: random.Random, how: str, when: str, both: bool) -> Result:
    names = names_of(lab.hosts) if lab is not None else ["localhost"]
    leaving = names if both else [draw.choice(names)]
    size, after, who = 2 * len(names), draw.choice((0.0, LONGEST)), " ".join(leaving)

    def trial() -> Result:
        must(until(lambda: len(job.members()) == size or job.past(), START_SECONDS), "does not start")
        if when == LAST_COMMIT:
            must(until(job.past, START_SECONDS), "no rank comes to its last commit")
        generation = max((last.generation for _, last in job.members()), default=0)
        time.sleep(draw.uniform(0.0, LONGEST if when == LAST_COMMIT else 0.5))
        began = time.monotonic()
        if how == "removed":
            listed.offer([name for name in names if name not in leaving])
        else:  # the agent of a host hears that it is about to go
            agents = [job.on_host(HOST_AGENT, one) for one in lab.hosts if one.name in leaving] if lab else ()
            for found in agents or [job.of_kind(HOST_AGENT)]:
                send(signal.Signals[how], found[:1])
        must(until(lambda: not job.runs(), START_SECONDS), "the job does not end")
        job.end()
        faults = _faults_of_end(job, size, when, generation)
        return result(f"{how}, {when}", who, time.monotonic() - began, faults, job)

    with HostList(names) as listed:
        source = () if lab is not None else ("--host-discovery-script", str(listed.script))
        options = (*source, "--min-np", "1", "--elastic-timeout", "20")
        with job_of(words, lab, *options, hosts=listed, steps=STEPS, after=after) as job:
            return tried(f"{how}, {when}", who, job, trial)


def _faults_of_end(job: ElasticJob, size: int, when: str, generation: int) -> list[str]:
    """Return what was not as it must be at a job's end; ``generation``: the one when a host was to leave."""
    outcome, returned = job.outcome(), len(list(job.place.glob("*.returned")))
    faults = [f"exit code {job.launcher.poll()}: {outcome.get('reason')}"] if job.launcher.poll() else []
    elastic = outcome.get("elastic", {})
    if elastic.get("ranks_started") != size:
        faults.append(f"{elastic.get('ranks_started')} ranks were started, not {size}")
    later = generation and elastic.get("generations") != generation  # 0: all had ended by then
    if when == LAST_COMMIT and (returned != size or later):
        faults.append(f"{returned} ranks returned, in {elastic.get('generations')} generations")
    return faults


# --- two failures at once; failures while a world starts, and while ranks go from one generation on -------

AT_ONCE = ("two ranks", "a rank and a host", "two hosts", "a proxy and a host agent")
AND_ENDS = ("two ranks, and the end", "two hosts, and the end", "a rank and a host, and the end")
STARTING = ("rank", "new proxy", "host agent", "host")
SWITCHING = ("rank", "new proxy", "old proxy", "host agent", "new host")
Two = Callable[[ElasticJob, Lab, random.Random, str, HostList | None], Result]


def two(words: Words) -> Iterator[Result]:
    draw = random.Random(words.seed)
    kinds: list[tuple[str, Two]] = [(what, _at_once) for what in AT_ONCE]
    kinds += [(what, _at_the_end) for what in AND_ENDS]
    kinds += [(f"{who}, while a world starts", _between_worlds) for who in STARTING]
    kinds += [(f"{who}, during a switch", _between_worlds) for who in SWITCHING]
    kinds = [kind for kind in kinds if words.only in kind[0]]
    with a_lab(4) as lab:
        for what, trial in kinds[:: 5 if words.sample else 1]:
            for _ in range(words.trials):
                is_switch, limits = "switch" in what, ("--max-np", "8", *SURVIVES)
                if trial is _at_the_end:  # a job that cannot do without any
                    most = ("--max-np", "8", "--rank-restarts", "0", "--elastic-timeout", "20")
                    limits = ("--min-np", "8", *most)
                with contextlib.ExitStack() as stack:
                    stack.enter_context(healed(lab, lab.hosts[2:]))
                    listed = stack.enter_context(HostList(names_of(lab.hosts[:3]))) if is_switch else None
                    job = stack.enter_context(job_of(words, lab, *limits, hosts=listed))
                    yield tried(what, "", job, functools.partial(trial, job, lab, draw, what, listed))


def _strike(job: ElasticJob, lab: Lab, draw: random.Random, what: str) -> tuple[list[str], int]:
    """Let two things fail at once; return the names of whom it is about, and how many ranks are left.

    The last host or two are those that fail, ranks of the first two are.
    """
    there = [one for one in job.members() if one.name.startswith((lab.hosts[0].name, lab.hosts[1].name))]
    chosen = draw.sample(there, 2 if "two ranks" in what else 1 if "rank" in what else 0)
    phase = draw.choice([phase for phase in PHASES if phase != "init"])
    for one in chosen:
        job.order(one.name, phase, "kill")
    hit = lab.hosts[2:] if "two hosts" in what else lab.hosts[3:] if "host" in what else ()
    if "proxy" in what:
        broken(lab, lab.hosts[2], "proxy")
    for host in hit:
        broken(lab, host, "host agent" if "agent" in what else "host")
    for one in chosen:
        job.wait_for_end(one.name, STRIKE_SECONDS)
    return [*(f"rank {one.last.rank} on" for one in chosen), *names_of(hit)], 8 - 2 * len(hit)


def _at_once(job: ElasticJob, lab: Lab, draw: random.Random, what: str, _: HostList | None) -> Result:
    starts(job, 8)
    began, mark = time.monotonic(), len(job.lines)
    told, left = _strike(job, lab, draw, what)
    found = trains(what, ", ".join(told), left, began, job)
    found["faults"] += [f"nobody said {who}" for who in told if not job.says(who, after=mark)]
    return found


def _at_the_end(job: ElasticJob, lab: Lab, draw: random.Random, what: str, _: HostList | None) -> Result:
    """The same in a job that cannot do without them: its last words name who failed, and nobody else."""
    starts(job, 8)
    began = time.monotonic()
    told, _left = _strike(job, lab, draw, what)
    must(until(lambda: not job.runs(), GO_ON_SECONDS, 0.02), "the job does not end")
    seconds, outcome = time.monotonic() - began, job.outcome()
    reason, faults = f"{outcome.get('whose')}: {outcome.get('reason')}", []
    if not any(who.removesuffix(" on") in reason for who in told):
        faults.append(f"the end names {reason!r}, and nobody of {', '.join(told)}")
    if job.launcher.poll() not in ({128 + signal.SIGKILL, 3} if "rank" in what else {3}):
        faults.append(f"exit code {job.launcher.poll()}")
    return result(what, ", ".join(told), seconds, faults, job)


def _between_worlds(
    job: ElasticJob, lab: Lab, draw: random.Random, what: str, listed: HostList | None
) -> Result:
    """A host comes (``listed``), or a proxy is killed, which ends its world; then something else fails."""
    victim = what.partition(",")[0]
    starts(job, 6 if listed else 8)
    rank = draw.choice([one for one in job.members() if one.name.startswith(lab.hosts[1].name)])
    known, old, new = pids(), job.of_kind(PROXY), list[int]()
    if victim == "rank":
        job.order(rank.name, "init", "kill")
    if listed:
        listed.offer(names_of(lab.hosts))
    else:
        broken(lab, lab.hosts[0], "proxy")
    if listed or victim != "rank":
        new = job.wait_for_new(PROXY, known, GO_ON_SECONDS)
        time.sleep(0.0 if listed else draw.uniform(0.0, 0.5))
    if listed:
        until(job.leaves, GO_ON_SECONDS, 0.0005, job.runs)
    if victim == "rank":
        job.wait_for_end(rank.name, STRIKE_SECONDS)
    elif "proxy" in victim:
        send(signal.SIGKILL, (old if victim == "old proxy" else new)[:1])
    else:
        hit = lab.hosts[2] if listed and victim != "new host" else lab.hosts[3]
        broken(lab, hit, victim.replace("new ", ""))
    return trains(what, rank.name, 6 if "host" in victim else 8, time.monotonic(), job)


# --- the whole --------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Words], Iterator[Result]]] = {
    "ranks": ranks,
    "hosts": hosts,
    "changes": changes,
    "two": two,
    "stopped": stopped,
    "returns": returns,
}


def table(results: list[Result]) -> Iterator[str]:
    groups = defaultdict[str, list[float]](list)
    for one in results:
        part = one["part"]
        if one["seconds"] is not None and not one["faults"]:
            groups[f"{part}: {one['what']}"].append(one["seconds"])
            groups[f"{part}: all"].append(one["seconds"])
    yield f"{'':48} {'n':>5} {'p50 s':>8} {'p90 s':>8} {'p99 s':>8} {'max s':>8}"
    for name, found in sorted(groups.items()):
        found.sort()
        at = [found[min(len(found) - 1, int(len(found) * part))] for part in (0.9, 0.99)]
        numbers = (statistics.median(found), *at, found[-1])
        yield f"{name:48} {len(found):5} " + " ".join(f"{number:8.3f}" for number in numbers)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("parts", nargs="*", choices=tuple(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--kills", type=int, default=200, help="strikes of ranks")
    parser.add_argument("--trials", type=int, default=2, help="of each kind; changes of hosts: ten times")
    parser.add_argument("--stops", type=int, default=100, help="changes across which proxies are stopped")
    parser.add_argument("--layout", choices=("host", "lab"), default="host", help="where ranks are struck")
    parser.add_argument("--mpi", default="embedded")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds of training between strikes")
    parser.add_argument("--sample", action="store_true", help="of the kinds a third, or a fifth")
    words = parser.parse_args()
    words.left = []

    def trials() -> Iterator[Result]:
        for part in words.parts or ["ranks"]:
            try:
                for one in PARTS[part](words):
                    yield one | {"part": part, "line": f"{part:8} {one['line']}"}
            except FailedError as error:
                words.left.append(f"{part}: {error}")

    results = carried_out(trials())
    return report(results, table(results), words.left, words.json_file)


if __name__ == "__main__":
    sys.exit(main())
