"""The same tests on every MPI: a plain mpi4py script, who failed, what is left."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import programs

pytestmark = pytest.mark.mpi

WORDS = {
    "embedded": "Open MPI v5",
    "openmpi4": "Open MPI v4",
    "mpich": "MPICH Version",
    "intel": "Intel(R) MPI",
}


def started(workplace, mpi, python):
    """Start a job whose ranks have initialized MPI and sleep; return its launcher."""
    words = ("run", "-n", "2", "--oversubscribe", "--mpi", mpi, python, "-c", programs.IN_MPI)
    launcher = workplace.ringleader(*words)
    workplace.wait_for("ringleader-test-rank", 2)
    for _ in range(2):
        assert b"up" in launcher.stdout.readline(), launcher.communicate()
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
