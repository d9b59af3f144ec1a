"""NCCL's groups in an elastic job: the order in which they are made and aborted, on a fake GPU over Gloo."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fork_server import clean_environment
from tests.proxy_world import ProxyWorld, said

pytestmark = [pytest.mark.mpi, pytest.mark.torch]
PROGRAM = Path(__file__).parent / "programs" / "elastic_gpu.py"
SECONDS = 90.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ProxyWorld]:
    one = ProxyWorld(tmp_path, clean_environment() | {"OMP_NUM_THREADS": "1"}, slots=[3])
    yield one
    one.close()


@pytest.mark.long
@pytest.mark.parametrize("where", ["device", "agreement"])
def test_groups_of_a_broken_generation_are_aborted_before_new_ones(
    world: ProxyWorld, tmp_path: Path, where: str
) -> None:
    """Two of three ranks survive the third, inside of CUDA or in an agreement; sums are exact again."""
    ranks = {}
    for number in range(3):
        with (tmp_path / f"rank{number}").open("wb") as out:
            command = [sys.executable, str(PROGRAM), "2", where]
            environ = world.environment(number, number)
            ranks[number] = subprocess.Popen(command, env=environ, stdout=out, stderr=subprocess.STDOUT)
    try:
        with world.lock:
            world.members = [(number, number) for number in range(3)]
        world.use_world(world.start_world())
        assert ranks[2].wait(SECONDS) == -signal.SIGKILL, words(tmp_path)
        with world.lock:
            world.members = [(number, number) for number in range(2)]
        for number in range(2):
            assert ranks[number].wait(SECONDS) == 0, words(tmp_path)
    finally:
        for one in ranks.values():
            one.kill()
            one.wait(10)
    for number in range(2):
        (result,) = said(tmp_path / f"rank{number}")
        assert result["pid"] == ranks[number].pid
        assert result["left"] == [], result
        check(result["steps"], waits=where == "device")


def words(place: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(place.glob("rank*")))


def check(steps: list[str], *, waits: bool) -> None:
    """Look at what one rank did in two generations."""
    assert not [step for step in steps if step.startswith("wrong")], steps
    second = steps.index("generation 2 of 2")
    first, after = steps[:second], steps[second:]
    groups = ["ringleader/generation.1/set.0", "ringleader/generation.1/set.1"]
    # Each group has its own abort, in its own thread, and then nothing is asked of it any more.
    aborts = [f"nccl aborts {group} in ringleader-abort" for group in groups]
    opened = [step for step in first if step.startswith("nccl opens")]
    assert opened == [f"nccl opens {one}" for one in groups]
    assert sorted(step for step in first if step.startswith("nccl aborts")) == aborts, first
    last = max(first.index(abort) for abort in aborts)
    assert not [step for step in first[last + 1 :] if step.startswith("nccl")], first
    errors = [step for step in first if step.startswith("error")]
    assert len(errors) == 1 and "rank 2 has ended" in errors[0], errors
    if waits:  # the script stood still for the device when the watch aborted
        assert first.index(errors[0]) > last
    # The next one's groups are new, are below its number in the store, and end as groups do.
    assert [step for step in after if "generation." in step and step.startswith("nccl")] == [
        "nccl opens ringleader/generation.2/set.0",
        "nccl shuts down ringleader/generation.2/set.0",
    ], after
    assert len([step for step in after if step.startswith("nccl allreduce SUM")]) == 6, after
