"""How each MPI is driven: argv, environments, hostfile, links; local or over ssh, by slot or by node."""

import dataclasses
import itertools
from dataclasses import replace

import pytest

from ringleader.plan.job import Family, Job, Placement
from ringleader.plan.rank_placement import place
from ringleader.render.mpirun_command import (
    SECRETS,
    mpirun_command,
    same_library,
    scrubbed,
)

AGENT = ("/my venv/bin/python", "-I", "-S", "/my venv/ringleader/agents/rank_agent.py")
SSH = ("/usr/bin/ssh", "-F", "/tmp/rl-ssh/config", "-x")
OPEN_MPI = (Family.OPENMPI4, Family.OPENMPI5)


def made(make_facts, mpi, *, remote=False, placement=Placement.SLOT, interface=None, extra=()):
    facts = tuple(make_facts(name, 2) for name in (("h1", "h2") if remote else ("localhost",)))
    job = Job(
        command=("train", "{np}"),
        hosts=tuple(fact.host for fact in facts),
        placement=placement,
        network_interface=interface,
        extra_mpirun_args=extra,
    )
    return mpirun_command(
        plan=place(job, facts),
        mpi=mpi,
        job=job,
        agent=AGENT,
        hostfile="/tmp/r/JOB/hostfile",
        session="/tmp/r/JOB/session",
        backing="/dev/shm/ringleader-JOB",
        ssh=SSH if remote else (),
        here="10.0.0.254",
    )


def as_text(found):
    lines = [repr(list(found.argv))]
    lines += [f"mpirun {name}={value}" for name, value in found.environment.items()]
    lines += [f"rank {name}={value}" for name, value in found.rank_environment.items()]
    lines += [f"hostfile {line}" for line in found.hostfile.splitlines()]
    lines += [f"link {name} -> {target}" for name, target in found.links.items()]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("family", list(Family))
def test_golden(make_facts, make_mpi, golden, family):
    parts = []
    mpi = replace(make_mpi(family), mpirun=f"/opt/my {family}/bin/mpirun")
    if family is Family.MPICH:
        mpi = replace(mpi, library="/usr/lib/libmpich.so.12")
    for remote, placement, interface in itertools.product((False, True), Placement, (None, "eth0")):
        title = f"{'ssh' if remote else 'local'}, by {placement}, {interface or 'any interface'}"
        found = made(make_facts, mpi, remote=remote, placement=placement, interface=interface)
        parts.append(f"# {title}\n{as_text(found)}")
    golden(f"call.{family}", "\n".join(parts))


@pytest.mark.parametrize("family", list(Family))
def test_every_call(make_facts, make_mpi, family):
    """The agent is last and whole, the secret is named but never told, no word of the table is left open."""
    for remote in (False, True):
        found = made(make_facts, make_mpi(family), remote=remote, extra=("--odd", "two words", "{np}"))
        where = found.argv.index("--odd")
        assert found.argv[-len(AGENT) :] == AGENT and where < found.argv.index(AGENT[0])
        assert found.argv[where + 1] == "two words"
        for name in SECRETS:
            assert any(name in word.split(",") for word in found.argv) and name not in found.environment
        told = (*found.environment.values(), *found.rank_environment.values())
        assert not any(word.startswith("{") for word in told) and all(found.environment.values())
        assert not any(word in SSH[:3] for word in found.argv), "ssh travels in the environment"


def test_mvapich_leaves_the_cores_to_the_agent(make_facts, make_mpi):
    mpich = make_mpi(Family.MPICH)
    mvapich = dataclasses.replace(mpich, relative="MVAPICH2")
    assert mvapich.name.startswith("MVAPICH2 ") and mpich.name.startswith("MPICH ")
    theirs = made(make_facts, mvapich).rank_environment
    assert theirs.items() - made(make_facts, mpich).rank_environment.items() == {
        ("MV2_ENABLE_AFFINITY", "0"),
        ("MVP_ENABLE_AFFINITY", "0"),
    }


def test_what_an_outer_mpi_or_allocation_left_does_not_steer_ours():
    mine = {"HOME": "/h", "OMPI_MCA_btl": "tcp", "OMPI_MCA_pml": "ob1", "MPICH_X": "1", "I_MPI_DEBUG": "5"}
    others = {
        "SLURM_JOB_ID": "1", "PBS_NODEFILE": "f", "LSB_HOSTS": "h", "PE_HOSTFILE": "f", "OMPI_MCA_plm": "x",
        "OMPI_COMM_WORLD_RANK": "0", "PRTE_MCA_plm": "x", "PMIX_RANK": "0", "PMI_RANK": "0", "PMI_FD": "9",
        "HYDRA_LAUNCHER_EXEC": "x", "MPIEXEC_TIMEOUT": "1", "MPI_LOCALRANKID": "0", "FLUX_URI": "u",
    }  # fmt: skip
    assert scrubbed(mine | others) == mine


def test_which_files_are_one_library():
    for loaded, planned, same in (
        ("/usr/lib/libmpi.so.40.30.4", "/usr/lib/libmpi.so.40", True),
        ("/usr/lib/libmpi.so.12.2.2", "/usr/lib/libmpi.so.40", False),
        ("/usr/lib/libmpich.so.12.2.2", "/usr/lib/libmpi.so.12", False),
        ("/venv/lib/libmpi.so.40", "/usr/lib/libmpi.so.40", False),
    ):
        assert same_library(loaded, planned) is same


@pytest.mark.parametrize("family", list(Family))
def test_several_interfaces_and_loopback(make_facts, make_mpi, family):
    """Open MPI takes a list, Hydra one name; loopback is no interface to start over."""
    found = made(make_facts, make_mpi(family), remote=True, interface="eth0, eth1")
    told = found.argv + tuple(found.environment.values())
    assert ("eth0,eth1" in told) is (family in OPEN_MPI)
    assert ("eth0" in told) is (family not in OPEN_MPI)
    found = made(make_facts, make_mpi(family), remote=False, interface="lo")
    assert "-iface" not in found.argv and not any("if_include" in name for name in found.environment)
