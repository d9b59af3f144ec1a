"""Facts of several hosts: the job that reads them, with outcomes of jobs that were not run."""

import dataclasses
from types import SimpleNamespace

import pytest
from tests.job_outcomes import outcome_of
from tests.unit.fabric import machines

from ringleader.dataclass_json import document
from ringleader.doctor.facts_job import one_rank_each, read_hosts
from ringleader.doctor.facts_program import ROUNDS, compared_clocks
from ringleader.errors import Fault, LaunchError, ProbeError, StoppedError
from ringleader.fabric.facts import Clock
from ringleader.launch.rank_answer import parts_of
from ringleader.plan.job import Host, Job

JOB = Job(command=("true",), hosts=tuple(Host(name=f"h{number}", slots=8) for number in (1, 2, 3)))
SILENT = Fault(where="host h2", what="nothing listens on it", hint="start sshd there")


def facts(hostname):
    return machines.host(hostname=hostname, clock=Clock(read_at=1.0))


class Launcher:
    """Stands for ``launch``: ranks answer, unless told otherwise."""

    def __init__(self, *, silent=(), mute=(), exit_code=0, whose="", reason=""):
        self.silent, self.mute = silent, mute
        self.exit_code, self.whose, self.reason = exit_code, whose, reason
        self.jobs = []

    def __call__(self, job, *, environ, listener):
        self.jobs.append(job)
        bad = [fault for fault in self.silent if fault.where in {f"host {host.name}" for host in job.hosts}]
        if bad:
            raise ProbeError(bad)
        for rank, host in enumerate(job.hosts):
            listener.output(rank, "stderr", b"boom\n")
            if host.name not in self.mute:
                for part in parts_of("facts", document(facts(host.name)), size=200):
                    listener.report(rank, part)
        clocks = [[0.5 * rank, 0.001] for rank in range(len(job.hosts))]
        for part in parts_of("clocks", clocks):
            listener.report(0, part)
        outcome = outcome_of(job, self.exit_code, whose=self.whose, reason=self.reason)
        failure = SimpleNamespace(rank=0) if self.exit_code else None
        return dataclasses.replace(outcome, first_failure=failure)


def read(launcher, job=JOB):
    return read_hosts(job, environ={}, seconds=30.0, launch=launcher)


def test_one_rank_on_each_host_whatever_its_slots():
    job = one_rank_each(dataclasses.replace(JOB, python="/opt/python"), seconds=20.0)
    assert [(host.name, host.slots) for host in job.hosts] == [("h1", 1), ("h2", 1), ("h3", 1)]
    assert job.command == ("/opt/python", "-P", "-m", "ringleader.doctor.facts_program", "5")
    assert (job.timeout, job.start_timeout, job.np) == (20.0, 20.0, None) and not job.transport_settings
    slow = dataclasses.replace(JOB, start_timeout=600.0)
    for job, seconds, words in ((JOB, 300, "5"), (slow, 300, "50"), (slow, 20, "20")):
        assert one_rank_each(job, seconds=seconds).command[-1] == words


def test_hosts_that_cannot_be_reached_are_named_and_the_others_read():
    launcher = Launcher(silent=[SILENT])
    found = read(launcher)
    assert [*found.facts] == ["h1", "h3"] and found.faults == (SILENT,)
    assert len(launcher.jobs) == 2
    found = read(Launcher())
    assert [one.clock.offset for one in found.facts.values()] == [0.0, 0.5, 1.0] and found.faults == ()
    assert found.facts["h3"].clock.offset_uncertainty == 0.001


def test_no_host_at_all_or_a_fault_of_this_machine_is_an_error():
    with pytest.raises(ProbeError):
        read(Launcher(silent=[dataclasses.replace(SILENT, where=f"host h{number}") for number in (1, 2, 3)]))

    def refuses(job, *, environ, listener):
        raise ProbeError([SILENT, Fault(where="this machine", what="its name does not resolve")])

    with pytest.raises(ProbeError, match="this machine"):
        read(refuses)

    def starts_nothing(job, *, environ, listener):
        raise LaunchError("mpirun ended", where="mpirun")

    with pytest.raises(LaunchError):
        read(starts_nothing)


def test_a_rank_that_tells_nothing_is_a_fault_with_its_last_words():
    found = read(Launcher(mute=["h1", "h2"], exit_code=1, reason="rank 0 failed"))
    assert [*found.facts] == ["h3"]
    first, second = found.faults
    assert first.where == "host h1" and first.what == "rank 0 failed; its last words: boom"
    (fault,) = read(Launcher(exit_code=1, reason="rank 0 on h1 ended with exit code 1")).faults
    assert fault.where == "the ranks" and fault.what.startswith("rank 0 on h1 ended") and "boom" in fault.what
    assert second.where == "host h2" and "stopped before it reported its facts: rank 0 failed" in second.what


def test_a_signal_ends_it():
    with pytest.raises(StoppedError, match="SIGINT") as stopped:
        read(Launcher(exit_code=130, whose="ringleader"))
    assert stopped.value.exit_code == 130


class World:
    """Stands for MPI's communicator: rank 1's clock is 2.5 s ahead, and it answers at once."""

    rank, size = 0, 2

    def __init__(self, ahead, now):
        self.ahead, self.now, self.messages = ahead, now, 0

    def send(self, value, *, dest, tag):
        self.messages += 1

    def recv(self, *, source, tag):
        return self.now() + self.ahead


def test_the_offset_of_a_clock_by_round_trips():
    ticks = iter(range(1000))
    world = World(2.5, lambda: next(ticks) * 1e-6)
    own, (offset, uncertainty) = compared_clocks(world, world.now)
    assert own == [0.0, 0.0] and world.messages == ROUNDS
    assert abs(offset - 2.5) < 0.01 + uncertainty
