"""The engine's contract over MPI proxies: the same programs as under mpirun, in ranks of an elastic job."""

from typing import Any

import pytest
from tests.collectives.layouts import several_hosts

pytestmark = [pytest.mark.mpi, pytest.mark.torch]
long = pytest.mark.long


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=long), pytest.param(4, marks=long)])
def test_contract_on_one_host(proxy_jobs: Any, size: int) -> None:
    proxy_jobs("contract.py", "window", ranks=size).passed(size)


@several_hosts("2x2", "2x1", "unequal 2+1", long=("2x2", "unequal 2+1"))
def test_contract_on_several_hosts(proxy_jobs: Any, size: int, per_host: int, transport: str) -> None:
    proxy_jobs("contract.py", transport, ranks=size, RINGLEADER_RANKS_PER_HOST=str(per_host)).passed(size)


@pytest.mark.long
@pytest.mark.parametrize("size", [2, 3])
def test_contract_of_plain_mpi(proxy_jobs: Any, size: int) -> None:
    proxy_jobs("contract.py", "mpi", ranks=size, RINGLEADER_TRANSPORT="mpi").passed(size)


@long
@pytest.mark.parametrize("program", ["contract.py", "contract_operations.py"])
def test_one_rank(proxy_jobs: Any, program: str) -> None:
    proxy_jobs(program, "loopback", ranks=1).passed(1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "transport", "environ"),
    [
        (3, "window", {}),
        (3, "mpi", {"RINGLEADER_TRANSPORT": "mpi"}),
        (4, "hosts", {"RINGLEADER_RANKS_PER_HOST": "2"}),
    ],
)
def test_rows_groups_and_sets(proxy_jobs: Any, size: int, transport: str, environ: dict[str, str]) -> None:
    proxy_jobs("contract_operations.py", transport, str(size), ranks=size, **environ).passed(size)


@pytest.mark.parametrize(
    ("size", "environ"),
    [
        (2, {}),
        (2, {"RINGLEADER_RANKS_PER_HOST": "1"}),
        pytest.param(4, {"RINGLEADER_RANKS_PER_HOST": "2"}, marks=long),
        pytest.param(3, {"RINGLEADER_RANKS_PER_HOST": "2"}, marks=long),
    ],
)
def test_training_equals_one_rank(proxy_jobs: Any, size: int, environ: dict[str, str]) -> None:
    proxy_jobs("training.py", ranks=size, **environ).passed(size)


ONE_HOST: dict[str, str] = {}
TWO_HOSTS = {"RINGLEADER_RANKS_PER_HOST": "1"}
TWO_BY_TWO = {"RINGLEADER_RANKS_PER_HOST": "2"}
PATIENCE = {"RINGLEADER_MISMATCH_PATIENCE": "0.2"}


@pytest.mark.parametrize(
    ("program", "arguments", "size", "environ"),
    [
        ("life.py", (), 2, ONE_HOST),
        ("lives.py", ("30",), 2, ONE_HOST),
        ("lives.py", ("20",), 4, TWO_BY_TWO),
        ("joining.py", (), 3, ONE_HOST),
        ("joining.py", (), 4, TWO_BY_TWO),
        ("threads.py", (), 2, ONE_HOST),
        ("averages.py", ("window",), 2, ONE_HOST),
        ("batch_norm.py", (), 2, ONE_HOST),
        ("compressing.py", (), 2, TWO_HOSTS),
        ("registered.py", (), 2, ONE_HOST),
        ("registering.py", (), 4, TWO_BY_TWO),
        ("releasing.py", (), 2, ONE_HOST),
        ("repeated.py", (), 4, TWO_BY_TWO),
        ("sharding.py", (), 2, TWO_HOSTS),
        ("sharding_state.py", (), 3, ONE_HOST),
        ("sets.py", (), 3, {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}),
        ("sets.py", (), 4, TWO_BY_TWO | {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}),
        ("autotuned.py", ("join",), 2, {"RINGLEADER_AUTOTUNE": "1"}),
        ("thawing.py", (), 2, ONE_HOST),
        ("optimizing.py", (), 2, ONE_HOST),
        ("optimizing.py", (), 4, TWO_BY_TWO),
        ("swapped.py", ("15",), 2, PATIENCE),
        ("swapped.py", ("15",), 4, TWO_BY_TWO | PATIENCE),
        ("kept_reductions.py", (), 2, PATIENCE),
        ("dropping.py", (), 2, ONE_HOST),
        ("freed_memory.py", (), 2, ONE_HOST),
        ("contract.py", ("uncoupled",), 2, {"RINGLEADER_UNCOUPLED": "1"}),
        ("in_step.py", ("in-step",), 4, TWO_BY_TWO | {"RINGLEADER_UNCOUPLED": "in-step"}),
    ],
)
@long
def test_programs(
    proxy_jobs: Any, program: str, arguments: tuple[str, ...], size: int, environ: dict[str, str]
) -> None:
    proxy_jobs(program, *arguments, ranks=size, **environ).passed(size)


@long
def test_autotune(proxy_jobs: Any) -> None:
    proxy_jobs("autotuned.py", ranks=2, RINGLEADER_AUTOTUNE="1").passed_with_trials(2)
