"""Memory that all ranks of a host see: the same results wherever it lies."""

from typing import Any

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.torch]


@pytest.mark.parametrize("count", ["300001", "8001", "5"])
@pytest.mark.parametrize("size", [2, 3])
def test_one_host(jobs: Any, size: int, count: str) -> None:
    jobs("registered.py", count, ranks=size).passed(size)


@pytest.mark.parametrize(
    ("size", "environ"), [(2, {"RINGLEADER_TRANSPORT": "mpi"}), (4, {"RINGLEADER_RANKS_PER_HOST": "2"})]
)
def test_elsewhere(jobs: Any, size: int, environ: dict[str, str]) -> None:
    """Between hosts and without shared memory the same calls give the same results."""
    jobs("registered.py", ranks=size, **environ).passed(size)


@pytest.mark.parametrize(
    ("size", "environ"),
    [
        (1, {}),
        (2, {}),
        (3, {}),
        pytest.param(4, {}, marks=pytest.mark.long),
        (4, {"RINGLEADER_RANKS_PER_HOST": "2"}),
        (2, {"RINGLEADER_TRANSPORT": "mpi"}),
    ],
)
def test_storages_that_move(jobs: Any, size: int, environ: dict[str, str]) -> None:
    jobs("registering.py", ranks=size, **environ).passed(size)


def test_a_storage_for_which_there_is_no_room(jobs: Any) -> None:
    done = jobs("registering.py", "too large", ranks=2)
    assert (done.code, done.out.count("rank done")) == (0, 2), done.err
    assert "/dev/shm is too small" in done.err
