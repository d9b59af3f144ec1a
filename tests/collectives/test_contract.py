"""One contract for all transports: `programs/contract.py`; `test_operations` runs its neighbor."""

import os
import shlex
import sys
from typing import Any

import pytest
from tests.collectives.layouts import several_hosts
from tests.fork_server import OVER_TCP

pytestmark = [pytest.mark.mpi, pytest.mark.torch]


@pytest.mark.parametrize("size", [2, *(pytest.param(one, marks=pytest.mark.long) for one in (3, 4))])
def test_shared_memory(jobs: Any, size: int) -> None:
    jobs("contract.py", "window", ranks=size).passed(size)


@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "transport", "environ"),
    [
        ("contract.py", "window", {}),
        ("contract_operations.py", "mpi", {"RINGLEADER_TRANSPORT": "mpi"}),
    ],
)
def test_ranks_that_are_started_as_by_users(
    jobs: Any, program: str, transport: str, environ: dict[str, str]
) -> None:
    """Ranks of a pool are forked from one Python, and variables say how Open MPI sends. These import by
    themselves, hash with another seed each, and Open MPI chooses."""
    mpirun = os.path.join(os.path.dirname(sys.executable), "mpirun")
    seeded = ["sh", "-c", 'PYTHONHASHSEED=$((OMPI_COMM_WORLD_RANK + 1)) exec "$@"', "sh"]
    words = [sys.executable, str(jobs.programs / program), transport, "3"]
    chosen = {name: value for name, value in jobs.environment(**environ).items() if name not in OVER_TCP}
    jobs.run([mpirun, "--oversubscribe", "-n", "3", *seeded, *words], environ=chosen).passed(3)


@pytest.mark.long
@pytest.mark.parametrize("size", [2, 3, 4])
def test_plain_mpi(jobs: Any, size: int) -> None:
    jobs("contract.py", "mpi", ranks=size, RINGLEADER_TRANSPORT="mpi").passed(size)


@several_hosts(
    "2x2", "2x1", "unequal 2+1", "unequal 3+1", long=("2x2", "2x1", "unequal 3+1"), smoke="unequal 2+1"
)
def test_several_hosts(jobs: Any, size: int, per_host: int, transport: str) -> None:
    """Ranks of this machine that are told to be on several hosts share no memory between them."""
    jobs("contract.py", transport, ranks=size, RINGLEADER_RANKS_PER_HOST=str(per_host)).passed(size)


@pytest.mark.long
def test_one_rank_under_mpirun(jobs: Any) -> None:
    jobs("contract.py", "loopback", ranks=1).passed(1)


def test_uncoupled(jobs: Any) -> None:
    jobs("contract.py", "uncoupled", ranks=2, RINGLEADER_UNCOUPLED="1").passed(2)


def test_in_step(jobs: Any) -> None:
    jobs("contract.py", "uncoupled", ranks=2, RINGLEADER_UNCOUPLED="in-step").passed(2)
    jobs("in_step.py", "in-step", ranks=2, RINGLEADER_UNCOUPLED="in-step").passed(2)
    jobs("in_step.py", "uncoupled", ranks=2, RINGLEADER_UNCOUPLED="1").passed(2)


@pytest.mark.long
def test_in_step_between_hosts(jobs: Any) -> None:
    environ = {"RINGLEADER_UNCOUPLED": "in-step", "RINGLEADER_RANKS_PER_HOST": "2"}
    jobs("in_step.py", "in-step", ranks=4, **environ).passed(4)


def test_alone_loads_no_mpi(jobs: Any) -> None:
    program = "import sys, runpy; sys.argv = [sys.argv[1], 'loopback']; runpy.run_path(sys.argv[0]); "
    program += "assert 'mpi4py.MPI' not in sys.modules"
    jobs.run([sys.executable, "-c", program, str(jobs.programs / "contract.py")]).passed(1)


@pytest.mark.long
@pytest.mark.root("mount another /dev/shm")
@pytest.mark.parametrize(("room", "transport"), [("10m", "mpi"), ("20m", "window")])
def test_small_shared_memory(jobs: Any, room: str, transport: str) -> None:
    """Without room the engine says so and continues over plain MPI."""
    mpirun = os.path.join(os.path.dirname(sys.executable), "mpirun")
    words = [mpirun, "--oversubscribe", "-n", "2", sys.executable, str(jobs.programs / "small_memory.py")]
    mount = f'mount -t tmpfs -o size={room} tmpfs /dev/shm && mkdir "$OMPI_MCA_osc_sm_backing_directory"'
    job = f"{mount} && exec {shlex.join([*words, transport])}"
    result = jobs.run(["unshare", "-m", "sh", "-c", job], OMPI_MCA_btl="self,tcp")
    assert result.code == 0, result.err + result.out
    assert result.out.count("rank done") == 2
    assert result.err.count("/dev/shm is too small") == 1
