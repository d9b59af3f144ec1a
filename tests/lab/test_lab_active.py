"""Active tests on a lab's hosts: a link that is slow one way is named with its direction; no equal one is."""

import os

import pytest

from ringleader.doctor.active_tests import measure_hosts
from ringleader.doctor.active_verdicts import judge
from ringleader.fabric.check_result import Verdict
from ringleader.lab import saved_state
from ringleader.plan.job import Host, Job, Ssh

pytestmark = [pytest.mark.lab, pytest.mark.mpi, pytest.mark.long]


@pytest.fixture
def slow_lab(scratch_name, ringleader):
    """Four hosts at 400 Mbit/s: far below what the machine itself can carry."""
    words = ("--hosts", "4", "--slots", "1", "--bandwidth", "400mbit", "--ssh-port", "42")
    done = ringleader("lab", "up", "--lab-name", scratch_name, *words)
    assert done.returncode == 0, done.stderr
    return saved_state.load(scratch_name)


def named(lab):
    """Measure, and return (id, subject) of what is not well."""
    job = Job(
        command=(), hosts=tuple(Host(name=host.name) for host in lab.hosts), ssh=Ssh(config=lab.ssh_config)
    )
    results = measure_hosts(
        job, facts={}, environ=os.environ, seconds=6.0, program_seconds=60.0, progress=lambda text: None
    )
    assert not results.failure and results.one_machine
    assert len(results.best_rates()) == 12
    bad = [one for one in judge(results) if one.verdict in (Verdict.FAIL, Verdict.WARN)]
    return {(one.id, one.subject) for one in bad}, [one.seen for one in bad]


def test_the_slow_host_and_its_direction_are_named_and_of_equal_links_nobody(slow_lab, ringleader):
    name, host = slow_lab.name, slow_lab.hosts[2].name
    found, seen = named(slow_lab)
    assert not found, seen
    for option, direction in (("--into", "into"), ("--out-of", "out of")):
        done = ringleader("lab", "slow", "h3", "--name", name, option, "100mbit")
        assert done.returncode == 0, done.stderr
        found, seen = named(slow_lab)
        assert found == {("active.host", f"{direction} {host}")}, seen
        assert ringleader("lab", "slow", "h3", "--name", name, "--off").returncode == 0
