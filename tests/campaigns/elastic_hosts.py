"""Hosts of a lab: one of its processes is killed, everything on it, its link is cut; hosts come and go."""

from __future__ import annotations

import argparse
import os
import random
import signal
import time
from collections.abc import Iterator

from elastic_trial import (
    GO_ON_SECONDS,
    START_SECONDS,
    SURVIVES,
    HostList,
    Result,
    failed,
    healed,
    job_of,
    lab_of,
    result,
)
from elastic_world import DAEMON, HOST_AGENT, PROXY, ElasticJob
from faults_world import command_line

from ringleader.lab import hosts as lab_hosts
from ringleader.lab import kernel_state
from ringleader.lab.saved_state import Lab, LabHost

HOST_FAULTS = (
    "proxy",
    "link 3 s",
    "host",
    "host agent",
    "link 15 s",
    "link for good",
    "mpirun daemon",
    "ssh sessions",
    "link 60 s",
)
UNDISTURBED_SECONDS = 5.0
"""An MPI may go on without the ssh sessions of a host, MPICH's mpiexec without its daemon there, and the
host's proxies do as well: so long they are watched."""
PROCESSES = {
    "proxy": PROXY,
    "mpirun daemon": DAEMON,
    "host agent": HOST_AGENT,
    "ssh sessions": ("sshd:", "sshd-session"),
}


def hosts(words: argparse.Namespace) -> Iterator[Result]:
    """Break one host of four, several times in each way; each in a job of its own."""
    with lab_of(4) as lab:
        chosen = [fault for fault in HOST_FAULTS if words.only in fault]
        for fault in chosen[:: 3 if words.sample else 1]:
            for _ in range(words.trials):
                host = lab.hosts[-1]
                with healed(lab, (host,)), job_of(words, lab, "--max-np", "8", *SURVIVES) as job:
                    yield _host_broken(lab, host, job, fault)


def _host_broken(lab: Lab, host: LabHost, job: ElasticJob, fault: str) -> Result:
    if not job.wait_until_steady(8, START_SECONDS):
        return failed(fault, host.name, "does not start", job)
    time.sleep(1.0)
    began, generation = time.monotonic(), job.members()[0].generation
    if problem := broken(lab, host, fault):
        return failed(fault, host.name, problem, job)
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
    if went_on is None:
        return failed(fault, host.name, "no step after it", job)
    faults = []
    if lost and fault != "ssh sessions" and not job.says(host.name):
        faults.append(f"{host.name} is not named")
    return result(fault, host.name, went_on - began, faults, job)


def broken(lab: Lab, host: LabHost, fault: str) -> str:
    """Break a host; return why that could not be done. All but links are broken at once."""
    if fault.startswith("link"):
        lab_hosts.cut(lab, host)
        return ""
    if fault == "host":
        first = kernel_state.first_process(host.namespace)
        found = [first] if first is not None else []
    else:
        found = ElasticJob.on_host(PROCESSES[fault], host)
        if fault == "ssh sessions":  # and not the one that listens, which is process 1
            found = [pid for pid in found if "listener" not in command_line(pid)]
        else:
            found = found[:1]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return "" if found else f"no such process on {host.name}"


def changes(words: argparse.Namespace) -> Iterator[Result]:
    """Let hosts come and go by a discovery script."""
    draw, listed = random.Random(words.seed), HostList()
    with lab_of(4) as lab:
        present = 2
        listed.offer(lab.hosts[:present])
        try:
            with job_of(words, lab, "--max-np", "8", *SURVIVES, hosts=listed) as job:
                if not job.wait_until_steady(2 * present, START_SECONDS):
                    yield failed("start", "job", "does not start", job)
                    return
                for _ in range(10 * words.trials):
                    wanted = draw.choice([count for count in (1, 2, 3, 4) if count != present])
                    for found in _changed(job, listed, lab.hosts[:wanted], present):
                        yield found
                        if found["faults"]:
                            return
                    present = wanted
        finally:
            listed.remove()


def _changed(job: ElasticJob, listed: HostList, wanted: tuple[LabHost, ...], before: int) -> Iterator[Result]:
    """Change the hosts; return the time between two steps, and that with the first one after it."""
    what, size = f"{before} to {len(wanted)} hosts", 2 * len(wanted)
    generation = job.members()[0].generation
    listed.offer(wanted)
    if job.wait_for_step(generation, size, GO_ON_SECONDS) is None:
        yield failed(what, "hosts", f"no step of {size} ranks", job)
        return
    steps = job.steps()
    first = min((step for step in steps if step.generation > generation), key=lambda step: step.at)
    old = max((step.at for step in steps if step.generation < first.generation), default=first.at)
    time.sleep(0.5)
    yield result(what, "hosts", job.begin_of(first.generation) - old, [], job)
    yield result("with the first step", f"{size} ranks", first.at - old, [], job)
