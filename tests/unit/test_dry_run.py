from __future__ import annotations

from dataclasses import replace

import pytest

from ringleader.doctor.host_gate import dry_run_lines
from ringleader.launch.host_probe.code_sync import rsync_argv
from ringleader.plan.job import Code, Family, Host, Job, Placement
from ringleader.plan.rank_placement import place
from ringleader.render.dry_run import code_lines, dry_run_text, numbers
from ringleader.render.mpirun_command import MpirunCommand, mpirun_command
from ringleader.render.rank_environment import Master, RankEnvironment, master_address, rank_environment

CALLER = {"PATH": "/usr/bin:/bin", "NCCL_DEBUG": "INFO", "HF_TOKEN": "hf_abcdefgh", "HOME": "/root"}


def text_of(job, facts, mpi, check=()):
    """The whole way from facts to text, with paths that stand still."""
    plan = place(job, facts)
    calling = mpirun_command(
        plan=plan,
        mpi=mpi,
        job=job,
        agent=("/venv/bin/python", "-I", "-S", "/venv/ringleader/agents/rank_agent.py"),
        hostfile="/tmp/ringleader-0/JOB/hostfile",
        session="/tmp/ringleader-0/JOB/session",
        backing="/dev/shm/ringleader-JOB",
        ssh=("/usr/bin/ssh", "-F", "/tmp/r.x/config") if len(plan.hosts) > 1 else (),
        here="10.0.0.254",
    )
    master = Master(address=master_address(plan), port="29500", jax_port="61442")
    found = [
        rank_environment(
            plan=plan,
            place=one,
            job=job,
            mpi=mpi,
            job_id="JOB",
            master=master,
            caller=CALLER,
            python="/venv/bin/python",
        )
        for one in plan.ranks
    ]
    environments = [
        replace(one, set=dict(sorted({**calling.rank_environment, **one.set}.items()))) for one in found
    ]
    return dry_run_text(
        job=job,
        plan=plan,
        mpi=mpi,
        command=calling,
        environment=calling.environment,
        ranks=environments,
        check=check,
    )


@pytest.mark.parametrize("family", list(Family))
def test_golden_two_hosts(make_facts, make_mpi, golden, family):
    facts = (
        make_facts("node1", 2, cores=8, gpus=("0", "1"), addresses=("10.0.0.1",)),
        make_facts("bob@fe80::2", 2, cores=4, gpus=("MIG-a", "MIG-b"), addresses=("10.0.0.2",)),
    )
    job = Job(
        command=("python", "train.py", "--name", "a b", "it's", "$HOME;ls", "two\nlines", ""),
        np=4,
        hosts=tuple(fact.host for fact in facts),
        placement=Placement.NODE,
        workdir="/home/me/my dir",
        env=(("GREETING", "hello world"), ("WANDB_API_KEY", "secret")),
        network_interface="eth1",
    )
    golden(f"dry_run.{family}", text_of(job, facts, make_mpi(family)))


def test_golden_code_that_is_sent(make_facts, make_mpi, golden):
    copy = "/home/me/.cache/ringleader/code/0123456789abcdef/tree"
    facts = (
        replace(make_facts("node1", 1), directory=f"{copy}/jobs", code_by="rsync"),
        replace(make_facts("bob@fe80::2", 1), directory=f"{copy}/jobs", code_by="tar"),
        replace(make_facts("node3", 1), directory=f"{copy}/jobs"),
        make_facts("localhost", 1),
    )
    job = Job(command=("true",), np=4, hosts=tuple(fact.host for fact in facts), workdir="/home/me/a b/jobs")
    code = Code(source="/home/me/a b", digest="0123456789abcdef", below="jobs", files=23, size=2_000_023)
    sizes = {"jobs/train.py": 2_000_001} | {f"file{number:02}": 1 for number in range(22)}
    incoming = "/home/me/.cache/ringleader/code/incoming-x"
    rsync = rsync_argv(("ssh", "-F", "CONFIG"), code.source, "node1", incoming, copy)
    golden("dry_run.sync", "\n".join([*code_lines(code, sizes, place(job, facts), rsync), ""]))


def test_golden_this_machine(make_facts, make_mpi, golden):
    job = Job(command=("true",), np=1, workdir="/w")
    mpi = replace(make_mpi(Family.OPENMPI5), embedded=True)
    golden("dry_run.local", text_of(job, (make_facts("localhost", None, cores=2),), mpi))


def test_golden_check_before_the_start(make_facts, make_mpi, golden):
    facts = tuple(make_facts(f"node{number}", 1, addresses=(f"10.0.0.{number}",)) for number in (1, 2))
    hosts = (*(one.host for one in facts), Host(name="node3", slots=1))
    job = Job(command=("true",), hosts=hosts, workdir="/w", check="active", spare_hosts=1, python="/venv/py")
    planned = replace(job, hosts=hosts[:2])
    golden("dry_run.check", text_of(planned, facts, make_mpi(Family.MPICH), tuple(dry_run_lines(job))))


def test_secrets_are_not_shown(make_facts, make_mpi):
    secrets = {
        "HF_TOKEN": "t0p1",
        "WANDB_API_KEY": "t0p2",
        "AWS_SECRET_ACCESS_KEY": "t0p3",
        "MY_PASSWORD": "t0p4",
        "hf_token": "t0p5",
    }
    job = Job(command=("true",), np=2, workdir="/w", env=tuple(secrets.items()))
    text = text_of(job, (make_facts("localhost", 2),), make_mpi(Family.MPICH))
    assert not any(value in text for value in secrets.values())
    assert all(f"{name}=(not shown" in text for name in secrets)
    assert "TOKENIZERS" not in text


def test_numbers_and_what_mpirun_is_kept_from_seeing(make_facts, make_mpi):
    found = [numbers(values) for values in ((), (3,), (0, 1, 2, 5), (4, 0, 2), (8, 9))]
    assert found == ["", "3", "0-2,5", "0,2,4", "8-9"]
    job, facts = Job(command=("true",), np=1, workdir="/w"), (make_facts("localhost", 1),)
    empty = {"environment": {}, "hostfile": "", "rank_environment": {}, "links": {}}
    text = dry_run_text(
        job=job,
        plan=place(job, facts),
        mpi=make_mpi(Family.MPICH),
        command=MpirunCommand(argv=("mpirun", "a b"), **empty),
        environment={"X": "1"},
        unset=("SLURM_JOB_ID",),
        ranks=[RankEnvironment()],
    )
    assert "then its argv\nunset SLURM_JOB_ID\nX=1\nmpirun 'a b'\n" in text
