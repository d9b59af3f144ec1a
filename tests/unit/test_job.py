"""What is wrong with a job and the bounds of an elastic one, told before anything starts, all at once."""

from dataclasses import replace

import pytest

from ringleader.errors import Fault, RequestError
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.plan.job import Host, Job, Ssh, Sync, check, faults_of

GOOD = Job(command=("python", "train.py"))


def test_a_good_job_passes_unchanged():
    job = replace(GOOD, np=2, hosts=(Host(name="h1", slots=2),), timeout=0.5, master_port=65535, threads=1)
    assert check(job) is job


def test_each_fault_names_its_option():
    for change, where in (
        ({"command": ()}, "COMMAND"),
        ({"command": ("a", "b\0c")}, "COMMAND"),
        ({"np": 0}, "-n"),
        ({"hosts": (Host(name="h1", slots=1), Host(name="h2", slots=0))}, "hosts[1].slots"),
        ({"ssh": Ssh(port=0)}, "--ssh-port"),
        ({"master_port": 70000}, "--master-port"),
        ({"threads": 0}, "--threads"),
        ({"timeout": 0.0}, "--timeout"),
        ({"start_timeout": -1.0}, "--start-timeout"),
        ({"grace": -0.1}, "--grace"),
        ({"bind": "socket"}, "--bind"),
        ({"consistency_check": "on"}, "--consistency-check"),
        ({"recycled_results": -1}, "--recycled-results"),
        ({"elastic": ElasticOptions(), "max_restarts": 1}, "--max-restarts"),
        ({"elastic": ElasticOptions(), "profile": "2:3", "profile_dir": "d"}, "--profile"),
        ({"profile_dir": "d"}, "--profile-dir"),
        ({"sync": Sync(target="/d")}, "--sync-to"),
        ({"sync": Sync(limit=9)}, "--sync-limit"),
    ):
        assert [fault.where for fault in faults_of(replace(GOOD, **change))] == [where]


def test_all_faults_come_at_once_with_those_found_while_reading():
    earlier = Fault(where="hosts.txt:3", what="bad")
    job = Job(command=(), np=0, ssh=Ssh(port=-5), bind="x", faults=(earlier,))
    with pytest.raises(RequestError) as caught:
        check(job)
    assert caught.value.faults[0] == earlier
    assert [fault.where for fault in caught.value.faults] == [
        "hosts.txt:3",
        "COMMAND",
        "--ssh-port",
        "-n",
        "--bind",
    ]


def test_an_unknown_mpi_is_a_wrong_request():
    (fault,) = faults_of(Job(command=("x",), mpi="lam"))
    assert fault.where == "--mpi" and "'lam' is unknown" in fault.what and "mpich" in fault.hint
    for word in ("embedded", "openmpi", "openmpi4", "intel", "/opt/mpi", "./mpirun"):
        assert faults_of(Job(command=("x",), mpi=word)) == ()


def test_bounds():
    for values, where in (
        ({"min_np": 4, "max_np": 2}, ["--min-np, --max-np"]),
        ({"min_hosts": 4, "max_hosts": 2}, ["--min-hosts, --max-hosts"]),
        ({"min_np": 0}, ["--min-np"]),
        ({"min_hosts": 0, "max_hosts": -1}, ["--min-hosts", "--max-hosts"]),
        ({"min_np": 3}, ["-n"]),
        ({"max_np": 1}, ["-n"]),
        ({"slots": 0}, ["--slots-per-host"]),
        ({"checkpoint_every": 0}, ["--checkpoint-every"]),
        ({"checkpoint_dir": ""}, ["--checkpoint-dir"]),
        ({"rank_restarts": -1, "reset_limit": -1}, ["--rank-restarts", "--reset-limit"]),
        ({"timeout": 0.0, "hang_seconds": float("nan")}, ["--elastic-timeout", "--elastic-hang-seconds"]),
        ({"cooldown": (1.0, 1.0)}, []),
        ({"cooldown": (100.0, 10.0)}, ["--blacklist-cooldown-range"]),
        ({"cooldown": (0.0, 5.0)}, ["--blacklist-cooldown-range"]),
    ):
        assert [fault.where for fault in ElasticOptions(**values).faults(2)] == where


def test_a_fault_that_two_readers_found_is_said_once():
    one, other = Fault(where="-n", what="is 0", hint="a"), Fault(where="-n", what="is missing")
    error = RequestError((one, Fault(where="-n", what="is 0", hint="b"), other))
    assert error.faults == (one, other)
