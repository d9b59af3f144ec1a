"""One contract for all transports, and what PyTorch's operations do beside it."""

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.collectives.layouts import CONTRACT, programs
from tests.fork_server import OVER_TCP

pytestmark = [pytest.mark.mpi, pytest.mark.torch]
MPIRUN = str(Path(sys.executable).with_name("mpirun"))
PLAIN_MPI = {"RINGLEADER_TRANSPORT": "mpi"}


@programs(
    (f"{CONTRACT} torch", "2 2+1!", "1 4 2x2 3x1"),
    (f"{CONTRACT} torch", "", "3", PLAIN_MPI),
    ("contract_operations.py {transport}", "1 3 2+1", "2 4 2x1 2x2 3+1"),
    ("contract_operations.py {transport}", "3", "2 4", PLAIN_MPI),
)
def test_operations(jobs: Any, program: str, layout: Any, environ: dict[str, str]) -> None:
    jobs.pass_on(layout, program, **environ)


@pytest.mark.long
@pytest.mark.parametrize(("transport", "environ"), [("window", {}), ("mpi", PLAIN_MPI)])
def test_ranks_that_are_started_as_by_users(jobs: Any, transport: str, environ: dict[str, str]) -> None:
    """Ranks of a pool are forked from one Python, and variables say how Open MPI sends. These import by
    themselves, hash with another seed each, and Open MPI chooses."""
    seeded = ["sh", "-c", 'PYTHONHASHSEED=$((OMPI_COMM_WORLD_RANK + 1)) exec "$@"', "sh"]
    words = [sys.executable, str(jobs.programs / "contract_operations.py"), transport]
    chosen = {name: value for name, value in jobs.environment(**environ).items() if name not in OVER_TCP}
    jobs.run([MPIRUN, "--oversubscribe", "-n", "3", *seeded, *words], environ=chosen).passed(3)


@programs(
    ("in_step.py in-step", "2", "2x2", {"RINGLEADER_UNCOUPLED": "in-step"}),
    ("in_step.py uncoupled", "2", "", {"RINGLEADER_UNCOUPLED": "1"}),
)
def test_ranks_that_only_meet(jobs: Any, program: str, layout: Any, environ: dict[str, str]) -> None:
    jobs.pass_on(layout, program, **environ)


def test_alone_loads_no_mpi(jobs: Any) -> None:
    program = "import sys, runpy; from pathlib import Path; sys.argv = [sys.argv[1], 'loopback']; "
    program += "sys.path.insert(0, str(Path(sys.argv[0]).parent)); runpy.run_path(sys.argv[0]); "
    program += "assert 'mpi4py.MPI' not in sys.modules"
    jobs.run([sys.executable, "-c", program, str(jobs.programs / "contract_operations.py")]).passed(1)


@pytest.mark.long
@pytest.mark.root("mount another /dev/shm")
@pytest.mark.parametrize(("room", "transport"), [("10m", "mpi"), ("20m", "window")])
def test_small_shared_memory(jobs: Any, room: str, transport: str) -> None:
    """Without room the engine says so and continues over plain MPI."""
    words = [MPIRUN, "--oversubscribe", "-n", "2", sys.executable, str(jobs.programs / "small_memory.py")]
    mount = f'mount -t tmpfs -o size={room} tmpfs /dev/shm && mkdir "$OMPI_MCA_osc_sm_backing_directory"'
    job = f"{mount} && exec {shlex.join([*words, transport])}"
    result = jobs.run(["unshare", "-m", "sh", "-c", job], OMPI_MCA_btl="self,tcp")
    assert result.code == 0, result.err + result.out
    assert result.out.count("rank done") == 2
    assert result.err.count("/dev/shm is too small") == 1
