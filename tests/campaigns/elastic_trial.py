"""What all parts of the elastic campaign share: jobs, labs, discovery scripts, and the result of a trial."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from elastic_world import ENDLESS, ElasticJob
from faults_world import a_lab

from ringleader.lab import hosts as lab_hosts
from ringleader.lab.saved_state import Lab, LabHost

START_SECONDS, GO_ON_SECONDS, STRIKE_SECONDS = 90.0, 60.0, 30.0
Result = dict[str, Any]
"""``what`` was done, to ``who``, after how many ``seconds`` it went on, and which ``faults`` were found."""


@contextlib.contextmanager
def lab_of(hosts: int) -> Iterator[Lab]:
    """Make a lab of hosts with two slots each."""
    with a_lab(hosts) as lab:
        yield lab


class HostList:
    """A discovery script that prints what was offered last."""

    def __init__(self) -> None:
        """Nothing is on offer."""
        self._list = Path(f"/tmp/rle-hosts-{os.getpid()}")
        self.script = Path(f"{self._list}.sh")
        self.script.write_text(f"#!/bin/sh\ncat {self._list}\n")
        self.script.chmod(0o755)
        self.offer(())

    def offer(self, hosts: tuple[LabHost, ...]) -> None:
        """Offer these hosts from now on."""
        self.offer_names([host.name for host in hosts])

    def offer_names(self, names: Sequence[str]) -> None:
        """Offer the hosts of these names from now on."""
        fresh = self._list.with_suffix(".new")
        fresh.write_text("".join(f"{name}:2\n" for name in names))
        fresh.rename(self._list)

    def remove(self) -> None:
        """Remove its files."""
        self._list.unlink(missing_ok=True)
        self.script.unlink(missing_ok=True)


@contextlib.contextmanager
def job_of(
    words: argparse.Namespace,
    lab: Lab | None,
    *more: str,
    hosts: HostList | None = None,
    steps: int = ENDLESS,
    after: float = 0.0,
) -> Iterator[ElasticJob]:
    """Start a job on this host, in a lab, or on the hosts of a list; at the end nothing may be left of it.

    ``after``: seconds that a rank takes at most after so many ``steps``.
    """
    if lab is None and hosts is not None:
        where: tuple[str, ...] = ("--oversubscribe",)
    elif lab is None:
        where = ("-n", "4", "--oversubscribe")
    else:
        source = (
            ("--hostfile", lab.hostfile) if hosts is None else ("--host-discovery-script", str(hosts.script))
        )
        where = (*source, "--ssh-config", lab.ssh_config)
    job = ElasticJob(words=(*where, "--mpi", words.mpi, *more), lab=lab, steps=steps, after=after)
    try:
        yield job
    finally:
        if left := job.end():
            words.left += [f"{' '.join(job.argv)}: {one}" for one in left]
        job.remove()


SURVIVES = ("--min-np", "1", "--rank-restarts", "100000")
"""Of jobs that go on whatever happens to their ranks."""


@contextlib.contextmanager
def healed(lab: Lab, hosts: tuple[LabHost, ...]) -> Iterator[None]:
    """Mend these hosts at the end."""
    try:
        yield
    finally:
        for host in hosts:
            with contextlib.suppress(Exception):
                lab_hosts.heal(lab, host)


def result(what: str, who: str, seconds: float | None, faults: list[str], job: ElasticJob) -> Result:
    """Return the result of a trial, with the end of the job's output."""
    faults = [*faults, *job.wrong()]
    return {
        "what": what,
        "who": who,
        "seconds": seconds,
        "faults": faults,
        "output": job.lines[-60:],
    }


def failed(what: str, who: str, why: str, job: ElasticJob) -> Result:
    """Return the result of a trial after which the job does not go on."""
    code = job.launcher.poll()
    ended = "" if code is None else f" (the launcher ended with {code})"
    return result(what, who, None, [why + ended], job)


def trains(what: str, who: str, size: int, since: float, job: ElasticJob) -> Result:
    """Wait until so many ranks train; seconds are from ``since`` to the first step of their generation."""
    if not job.wait_until_steady(size, GO_ON_SECONDS):
        there = [(one.name, one.size, one.generation) for one in job.members()]
        return failed(what, who, f"not {size} ranks: {there}", job)
    generation = job.members()[0].generation
    at = job.wait_for_step(generation - 1, size, GO_ON_SECONDS, since)
    if at is None:
        return failed(what, who, f"no step of {size} ranks", job)
    return result(what, who, at - since, [], job)
