"""Every MPI, here and over ssh on the hosts of a lab: a plain script, placement, who failed, what is left."""

import os
import sys
import time
from pathlib import Path

import pytest
from tests.labs import a_lab

sys.path.insert(0, str(Path(__file__).parent))
import programs

from ringleader.plan.job import Host, Placement, Ssh

pytestmark = pytest.mark.mpi

WORDS = {"embedded": "Open MPI v5", "openmpi4": "Open MPI v4", "mpich": "MPICH Ver", "intel": "Intel(R) MPI"}


def started(workplace, mpi, python, lab=None):
    """Start ranks that have initialized MPI and sleep, two a host; return their launcher."""
    where, ranks = ("-n", "2", "--oversubscribe"), 2
    if lab is not None:
        hosts = ",".join(f"{host.name}:2" for host in lab.hosts[:2])
        where, ranks = ("-H", hosts, "--ssh-config", str(lab.ssh_config)), 4
    launcher = workplace.ringleader("run", "--mpi", mpi, *where, python, "-c", programs.IN_MPI)
    while ranks:
        line = launcher.stdout.readline()
        assert line, launcher.communicate()
        ranks -= b"up" in line
    return launcher


def test_allreduce_runs_on_the_mpi_that_was_asked_for(workplace, mpi, python, request):
    outcome, heard = workplace.launch(python, "-c", programs.ALLREDUCE, mpi=mpi, np=3)
    assert outcome.exit_code == 0, (outcome.reason, heard.all("stderr"))
    word = WORDS[request.node.callspec.params["mpi"]]
    for rank in range(3):
        assert word in heard.text(rank)
        assert heard.text(rank).rstrip().endswith(f"{rank} 3 6")
    assert heard.all("stderr") == "", "standard error of a healthy job is empty"
    assert heard.warnings == []


def test_mpi_abort_names_the_rank_and_its_code(workplace, mpi, python):
    outcome, _ = workplace.launch(python, "-c", programs.ABORT, mpi=mpi)
    assert (outcome.exit_code, outcome.whose) == (5, "rank 1"), outcome.reason


def test_sigkill_of_ringleader_ends_all_ranks_and_the_next_start_cleans(workplace, some_mpi, python):
    launcher = started(workplace, some_mpi, python)
    launcher.kill()
    assert not workplace.gone_within(5.0)
    done = workplace.run("run", "-n", "1", "--mpi", some_mpi, "true")
    assert done.returncode == 0, done.stderr
    assert workplace.job_directories() == []


# --- over ssh ---------------------------------------------------------------------------------------------

DAEMONS = ("prted", "orted", "hydra_pmi_proxy")


@pytest.fixture(scope="module")
def lab():
    with a_lab("m", hosts=2, port=36) as made:
        yield made


def on(lab):
    """Return the options of a job on the lab's hosts."""
    hosts = tuple(Host(name=host.name, slots=2) for host in lab.hosts)
    return {"hosts": hosts, "np": None, "ssh": Ssh(config=str(lab.ssh_config))}


@pytest.mark.lab
def test_allreduce_over_hosts(workplace, lab, mpi, python):
    # Debian's MPICH 4.0 may hang in MPI_Finalize over TCP, under its own mpiexec too: it is left out.
    env = (("MPI4PY_RC_FINALIZE", "0"),) if "mpich" in mpi else ()
    outcome, heard = workplace.launch(python, "-c", programs.ALLREDUCE, mpi=mpi, env=env, **on(lab))
    assert outcome.exit_code == 0, (outcome.reason, heard.all("stderr"))
    assert [heard.text(rank).rstrip().endswith(f"{rank} 4 10") for rank in range(4)] == [True] * 4
    assert heard.all("stderr") == ""


@pytest.mark.lab
@pytest.mark.parametrize("placement", [Placement.NODE, pytest.param(Placement.SLOT, marks=pytest.mark.long)])
def test_placement_is_the_plans(workplace, lab, mpi, placement):
    outcome, heard = workplace.launch("hostname", mpi=mpi, placement=placement, **on(lab))
    assert outcome.exit_code == 0, outcome.reason
    names = [heard.text(rank).strip() for rank in range(4)]
    first, second = (host.name for host in lab.hosts[:2])
    order = [first, first, second, second] if placement is Placement.SLOT else [first, second] * 2
    assert names == order


@pytest.mark.lab
def test_sigkill_of_ringleader_ends_ranks_on_every_host(workplace, lab, some_mpi, python):
    launcher = started(workplace, some_mpi, python, lab)
    assert len(workplace.wait_for("ringleader-test-rank", 4)) == 4
    launcher.kill()
    assert not workplace.gone_within(5.0)
    workplace.run("run", "-n", "1", "true")


@pytest.mark.lab
def test_sigkill_of_a_hosts_daemon_ends_the_job(workplace, lab, mpi, python):
    launcher = started(workplace, mpi, python, lab)
    guards = {parent_of(parent_of(parent_of(pid))) for pid in workplace.wait_for("ringleader-test-rank", 4)}
    daemons = sorted(pid for pid in guards if Path(f"/proc/{pid}/comm").read_text().strip() in DAEMONS)
    assert len(daemons) == 2, guards
    os.kill(daemons[0], 9)
    began = time.monotonic()
    _, err = launcher.communicate(timeout=30)
    assert launcher.returncode != 0, err
    assert not workplace.gone_within(max(0.1, 5.0 - (time.monotonic() - began)))


def parent_of(pid):
    """Return a process's parent: a rank's is its inner agent, that one's the outer one's, then the daemon."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
