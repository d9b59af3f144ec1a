"""Real ranks under real quotas of CPUs: whether the engine knows that they have to wait for each other."""

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.commands import finished
from tests.control_groups import control_group

pytestmark = pytest.mark.mpi
ASK = """\
from mpi4py import MPI
from ringleader.engine.group_communicators import open_communicators
from ringleader.engine.mpi_communicator import mpi_world
world = mpi_world(MPI)
base = world.everybody.duplicate()
comms = open_communicators(world, base, numbers=range(base.size))
print(comms.ranks.oversubscribed)
"""


def oversubscribed(groups: Sequence[Path]) -> set[str]:
    """Return what the ranks say, each in its control group."""
    places = " ".join(shlex.quote(str(group / "cgroup.procs")) for group in groups)
    python = shlex.quote(sys.executable)
    enter = f'set -- {places}; shift "$OMPI_COMM_WORLD_RANK"; echo $$ > "$1"; exec {python} -c "$ASK"'
    words = ["run", "--oversubscribe", "--no-prefix", "--bind", "none", "-n", str(len(groups)), "-x", "ASK"]
    done = finished(
        [sys.executable, "-m", "ringleader", *words, "sh", "-c", enter],
        env={**os.environ, "ASK": ASK},
        timeout=120,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("above", "answer"),
    [
        (None, "False"),  # each in its own container
        (1.5, "True"),  # which share what is above them
    ],
)
def test_ranks_bring_what_their_control_groups_grant(above: float | None, answer: str) -> None:
    """What follows from the numbers is tested in tests/unit/test_usable_cores.py."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs a processor for each rank")
    with ExitStack() as stack:
        parent = stack.enter_context(control_group(above))
        made = [stack.enter_context(control_group(1.0, parent)) for _ in range(2)]
        assert oversubscribed(made) == {answer}
